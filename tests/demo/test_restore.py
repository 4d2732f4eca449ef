"""The model: it removes noise, keeps edges and light, and stays stable."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from omni_platforms.demo.find import shipped_photos
from omni_platforms.demo.noise import Pixels, add_noise, psnr
from omni_platforms.demo.pack import encode_png, to_uint8
from omni_platforms.demo.restore import Restorer, diffusion, from_opponent, to_opponent

CPU = torch.device("cpu")


def tensor(pixels: Pixels) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous()


def restored(pixels: Pixels, **settings: float) -> Pixels:
    return to_uint8(Restorer(CPU, **settings)(tensor(pixels))).numpy()  # type: ignore[arg-type]


def step_edge() -> Pixels:
    """Dark grey on the left, light grey on the right."""
    pixels = np.full((96, 96, 3), 70, np.uint8)
    pixels[:, 48:] = 180
    return pixels


def test_restored_photographs_are_much_closer_to_the_original() -> None:
    for number, path in enumerate(shipped_photos()):
        original = np.array(Image.open(path).convert("RGB"))
        noisy = add_noise(original, 0.08, number)
        assert psnr(restored(noisy, noise=0.08), original) > psnr(noisy, original) + 6


def test_a_step_edge_stays_sharper_than_under_an_equally_smooth_blur() -> None:
    original = step_edge()
    noisy = add_noise(original, 0.08, 1)
    ours = restored(noisy, noise=0.08).astype(float)
    left = np.s_[8:88, 8:40]
    target = ours[left].std()
    # The weakest blur that leaves as little noise in the flat part as we do.
    for sigma in np.arange(0.4, 6, 0.1):
        blurred = gaussian_filter(noisy.astype(float), (sigma, sigma, 0))
        if blurred[left].std() <= target:
            break
    assert blurred[left].std() <= target < 0.3 * noisy[left].astype(float).std()

    def steepest(pixels: np.ndarray) -> float:
        return float(np.abs(np.diff(pixels.mean(axis=(0, 2)))).max())

    assert steepest(ours) > 0.75 * 110
    assert steepest(ours) > 1.5 * steepest(blurred)


def test_many_steps_on_the_worst_picture_stay_in_range() -> None:
    chessboard = (np.indices((31, 33)).sum(axis=0) % 2 * 255).astype(np.uint8)
    photo = tensor(np.repeat(chessboard[..., None], 3, axis=2))
    for noise in (0.0, 1.0):
        result = Restorer(CPU, steps=300, noise=noise)(photo)
        assert bool(torch.isfinite(result).all())
        assert float(result.min()) >= 0
        assert float(result.max()) <= 1


def test_no_light_is_lost() -> None:
    photo = torch.rand(1, 3, 37, 53, dtype=torch.float64)
    total = diffusion(photo, 0.03).sum(dim=(2, 3))
    assert torch.allclose(total, torch.zeros_like(total), atol=1e-10)


def test_an_even_picture_stays_as_it_is() -> None:
    even = np.full((20, 24, 3), (10, 120, 250), np.uint8)
    assert np.array_equal(restored(even, noise=0.08), even)


def test_the_opponent_basis_is_orthonormal() -> None:
    photo = torch.rand(1, 3, 8, 9, dtype=torch.float64)
    turned = to_opponent(photo)
    assert torch.allclose(from_opponent(turned), photo)
    assert torch.allclose(turned.square().sum(), photo.square().sum())


def test_a_picture_without_a_gradient_is_refused() -> None:
    with pytest.raises(ValueError, match="no gradient"):
        Restorer(CPU)(torch.zeros(1, 3, 1, 5, dtype=torch.uint8))


def test_png_has_the_very_pixels(tmp_path) -> None:
    pixels = add_noise(step_edge(), 0.2, 3)
    path = tmp_path / "x.png"
    path.write_bytes(encode_png(torch.from_numpy(pixels)))
    assert np.array_equal(np.array(Image.open(path)), pixels)


def test_noise_is_seeded_and_of_the_strength_asked_for() -> None:
    grey = np.full((100, 100, 3), 128, np.uint8)
    noisy = add_noise(grey, 0.05, 7)
    assert np.array_equal(noisy, add_noise(grey, 0.05, 7))
    assert not np.array_equal(noisy, add_noise(grey, 0.05, 8))
    assert noisy.std() == pytest.approx(0.05 * 255, rel=0.03)
    assert add_noise(grey, 0, 7) is grey
