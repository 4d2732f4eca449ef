"""`Restorer`: a model without weights, which removes noise and keeps edges.

Each step lets the picture diffuse a little. A diffusion tensor, made from the
gradient of the smoothed luminance, says how: in all directions in flat regions,
only along the edge where there is one, for all colours alike. A weak pull
towards the photo that came in keeps fine texture, a weaker one its colours,
because the eye forgives soft colours and not soft outlines.

The picture is held as luminance and two colour differences (an orthonormal
basis, so white noise stays white). The model knows nothing of files.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

# An explicit step is stable while `step * (8 + pull) <= 2`: the 4-neighbour part
# has norm 8 at full conductance, and what the tensor adds along edges (norm 4)
# replaces twice that.
STEP = 0.2
_PULL = (0.4, 0.05, 0.05)
_CONTRAST_FOR_NOISE = 0.375
_LEAST_CONTRAST = 0.012
# At first noise has steeper gradients than faint edges: those steps look away more.
_EARLY_SHARE = 0.2
_EARLY_FACTOR = 2.0
SMALLEST_SIDE = 2


class Restorer:
    """Restores one photo a call, with `steps` explicit diffusion steps on `device`.

    `noise` is the standard deviation of the noise to remove, on the scale where
    white is 1; at 0 the photo is gently smoothed. Calls enqueue work on the
    calling thread's current stream and do not make the host wait.
    """

    def __init__(self, device: torch.device, steps: int = 24, noise: float = 0.08) -> None:
        self.device = device
        self.steps = steps
        self._contrast = max(_LEAST_CONTRAST, _CONTRAST_FOR_NOISE * noise)
        self._pull = torch.tensor(_PULL, device=device).view(1, 3, 1, 1)

    @torch.no_grad()
    def __call__(self, photo: Tensor) -> Tensor:
        """Return the photo (uint8, `[1, 3, height, width]`) restored (float32, 0 to 1).

        The photo must be on the model's device, or `RuntimeError` follows, and
        each side must have at least `SMALLEST_SIDE` pixels, or `ValueError` does.
        """
        if min(photo.shape[-2:]) < SMALLEST_SIDE:
            raise ValueError(f"a photo of shape {tuple(photo.shape)} has no gradient to follow")
        start = picture = to_opponent(photo.float() / 255)
        for number in range(self.steps):
            change = diffusion(picture, self._contrast_at(number))
            picture = picture + STEP * (change + self._pull * (start - picture))
        return from_opponent(picture).clamp_(0, 1)

    def _contrast_at(self, number: int) -> float:
        early = number < self.steps * _EARLY_SHARE
        return self._contrast * (_EARLY_FACTOR if early else 1)


def to_opponent(rgb: Tensor) -> Tensor:
    """Turn red, green, blue (dimension 1) into luminance and two colour differences."""
    red, green, blue = rgb.chunk(3, dim=1)
    luminance = (red + green + blue) * 3**-0.5
    return torch.cat((luminance, (red - blue) * 2**-0.5, (red - 2 * green + blue) * 6**-0.5), dim=1)


def from_opponent(picture: Tensor) -> Tensor:
    """Undo `to_opponent`."""
    luminance, red_blue, green = picture.chunk(3, dim=1)
    grey = luminance * 3**-0.5
    half = red_blue * 2**-0.5
    magenta = green * 6**-0.5
    return torch.cat((grey + half + magenta, grey - 2 * magenta, grey - half + magenta), dim=1)


def diffusion(picture: Tensor, contrast: float) -> Tensor:
    """Return the divergence of the flux of `picture`, of the same shape.

    `contrast` is the luminance step a pixel at which conductance across an edge
    has fallen to one half. The sum over the picture is zero: no light is lost.
    """
    across_x, across_y = _cell_gradient(_smooth(picture[:, :1]))
    strength = across_x.square() + across_y.square()
    conductance = 1 / (1 + (strength / contrast**2).square())
    along = (1 - conductance) / (strength + 1e-12)
    return _neighbour_flow(picture, conductance) + _edge_flow(picture, across_x, across_y, along)


def _smooth(picture: Tensor) -> Tensor:
    """Blur with the weights 1, 2, 1 in both directions."""
    wide = pad(picture, (1, 1, 0, 0), mode="replicate")
    rows = (wide[..., :-2] + 2 * wide[..., 1:-1] + wide[..., 2:]) / 4
    tall = pad(rows, (0, 0, 1, 1), mode="replicate")
    return (tall[..., :-2, :] + 2 * tall[..., 1:-1, :] + tall[..., 2:, :]) / 4


def _cell_gradient(picture: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient in the middle of each square of four pixels."""
    right = picture[..., 1:] - picture[..., :-1]
    down = picture[..., 1:, :] - picture[..., :-1, :]
    return (right[..., 1:, :] + right[..., :-1, :]) / 2, (down[..., 1:] + down[..., :-1]) / 2


def _neighbour_flow(picture: Tensor, conductance: Tensor) -> Tensor:
    """Flow between the four neighbours; the conductance of cells is averaged to the borders."""
    cells = pad(conductance, (1, 1, 1, 1), mode="replicate")
    sideways = (cells[..., 1:, 1:-1] + cells[..., :-1, 1:-1]) / 2
    upright = (cells[..., 1:-1, 1:] + cells[..., 1:-1, :-1]) / 2
    flow_x = pad(sideways * (picture[..., 1:] - picture[..., :-1]), (1, 1, 0, 0))
    flow_y = pad(upright * (picture[..., 1:, :] - picture[..., :-1, :]), (0, 0, 1, 1))
    return flow_x[..., 1:] - flow_x[..., :-1] + flow_y[..., 1:, :] - flow_y[..., :-1, :]


def _edge_flow(picture: Tensor, across_x: Tensor, across_y: Tensor, along: Tensor) -> Tensor:
    """Flow along the edge, which is at right angles to (`across_x`, `across_y`)."""
    slope_x, slope_y = _cell_gradient(picture)
    amount = along * (across_x * slope_y - across_y * slope_x)
    flow_x = pad(-across_y * amount, (1, 1, 1, 1))
    flow_y = pad(across_x * amount, (1, 1, 1, 1))
    return _cell_divergence(flow_x, flow_y)


def _cell_divergence(flow_x: Tensor, flow_y: Tensor) -> Tensor:
    """Return the divergence at the pixels of a flow given in the middle of the squares."""
    right = flow_x[..., 1:] - flow_x[..., :-1]
    down = flow_y[..., 1:, :] - flow_y[..., :-1, :]
    return (right[..., 1:, :] + right[..., :-1, :] + down[..., 1:] + down[..., :-1]) / 2
