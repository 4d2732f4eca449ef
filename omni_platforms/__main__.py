"""`python -m omni_platforms`: the same as the command `omni-platforms`."""

from omni_platforms.cli import main

if __name__ == "__main__":
    main(prog_name="omni-platforms")
