"""Glyphs: a synthetic stand-in for EMNIST, drawn from the fonts that matplotlib ships. It is NOT EMNIST.

The same 47 classes and the same 28 x 28 pictures, for machines without the data: characters of 21 typefaces, turned,
slanted, scaled, shifted, bent and drawn with a thinner or thicker pen. Nobody wrote them by hand; a figure obtained
on them must be called one on glyphs and never be reported as one on EMNIST. A class that EMNIST merged from a
capital and its small letter has both here too, and so the same doubts between l, I and 1, or O and 0.

How: each character of each typeface is kept as a map of distances to its outline. A sample looks that map up along
a distorted grid; adding to the distance before it is turned into ink is a change of stroke width.

A split is made in blocks, each with a random stream of its own, so sample i is a function of the seed, the split
and i (and of the version of matplotlib, whose FreeType draws the outlines).
"""

from __future__ import annotations

import functools
import string
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dracofl import rng
from dracofl.datasets.images import CLASS_NAMES, SIDE, Images, classification
from dracofl.datasets.samples import Classification, Samples

Floats = npt.NDArray[np.float32]

FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmr10", "cmb10", "cmti10", "cmss10", "cmtt10"),
)
"""Files in matplotlib's font folder: all there that hold every letter and digit in the shape we know."""

# The distortions, in pixels of the picture where they are lengths. They were chosen to look like EMNIST beside it
# and to be about as hard: see the accuracies in tests/datasets/test_glyphs.py.
_SIZE = (20.0, 24.0)  # of the longer side of the character, after all but the bending
_ASPECT = (0.85, 1.2)  # width over height, times that of the font
_HALF_TURN = (-0.13, 0.13)  # tangent of half the angle: 15 degrees either way
_SLANT = (-0.25, 0.4)  # to the left and, as people do, more to the right
_SHIFT = (-1.0, 1.0)
_BEND = 4.0  # of a control point; the picture moves by a quarter of it (one standard deviation)
_BEND_SPACING = 9.0
_PEN = (-0.15, 0.65)  # added at either side of a stroke
_BLUR = 1.8  # from no ink to full ink

_EM = 48  # of the outlines; a character is then 20 to 56 pixels high or wide
_ROOM = 66  # side of a distance map
_STEPS = 16  # of a distance map in a pixel of it; int8 then reaches 8 pixels, and beyond there is no ink
_BLOCK = 10 * len(CLASS_NAMES)
_CHARACTERS = string.digits + string.ascii_letters


@dataclass(frozen=True, eq=False)
class _Outlines:
    """By character (as in `_CHARACTERS`) and font."""

    distances: npt.NDArray[np.int8]
    """Signed distance to the outline in 1/_STEPS pixels, positive inside: (62, 21, _ROOM, _ROOM)."""
    widths: Floats
    """(62, 21), like the heights."""
    heights: Floats


def generate(seed: int, train_count: int, test_count: int = 4_700, validation_count: int = 2_000) -> Classification:
    """A synthetic set. Each split has its own streams, and a longer one begins with the shorter one.

    Of each 47 samples one is of each class, in random order.
    """

    def split(name: str, count: int) -> Samples:
        blocks = [_block(seed, name, number) for number in range(-(-count // _BLOCK))]
        images = [block.inputs for block in blocks] or [np.empty((0, SIDE, SIDE), np.uint8)]
        labels = [block.labels for block in blocks] or [np.empty(0, np.int32)]
        # Copies, lest the rows cut off be kept.
        return Samples(np.concatenate(images)[:count].copy(), np.concatenate(labels)[:count].copy())

    return classification(split("train", train_count), split("test", test_count), split("validation", validation_count))


def _block(seed: int, split: str, number: int) -> Samples:
    generator = rng.generator(seed, f"glyphs-{split}", number)
    classes = len(CLASS_NAMES)
    labels = generator.random((_BLOCK // classes, classes)).argsort(axis=1).ravel()
    characters = _forms()[labels, generator.integers(0, 2, _BLOCK)]
    fonts = generator.integers(0, len(FONTS), _BLOCK)
    return Samples(_draw(generator, characters, fonts), labels.astype(np.int32))


def _draw(generator: np.random.Generator, characters: npt.NDArray[np.intp], fonts: npt.NDArray[np.intp]) -> Images:
    """A picture of each character, each distorted in its own way."""
    outlines, count = _outlines(), len(characters)

    def uniform(low: float, high: float) -> Floats:
        return generator.uniform(low, high, (count, 1, 1)).astype(np.float32)

    half_turn, slant, aspect = uniform(*_HALF_TURN), uniform(*_SLANT), uniform(*_ASPECT)
    right, down, size, pen = uniform(*_SHIFT), uniform(*_SHIFT), uniform(*_SIZE), uniform(*_PEN)

    # From a pixel of the picture to the place in the map that it shows: bend, shift, turn, slant, scale.
    basis = _bend_basis()
    controls = generator.uniform(-_BEND, _BEND, (2, count, basis.shape[1], basis.shape[1])).astype(np.float32)
    bend_x, bend_y = basis @ controls @ basis.T
    place = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    x, y = place + bend_x - right, place[:, None] + bend_y - down
    cosine, sine = (1 - half_turn**2) / (1 + half_turn**2), 2 * half_turn / (1 + half_turn**2)
    x, y = cosine * x + sine * y, cosine * y - sine * x
    x = (x + slant * y) / aspect  # y points down: a positive slant leans to the right

    # The way back takes the sides of the box around the character to those of a parallelogram.
    wide = outlines.widths[characters, fonts][:, None, None] * aspect
    high = outlines.heights[characters, fonts][:, None, None]
    longer = np.maximum(
        np.abs(cosine) * wide + np.abs(cosine * slant + sine) * high,
        np.abs(sine) * wide + np.abs(cosine - sine * slant) * high,
    )
    zoom = longer / size
    x, y = x * zoom, y * zoom

    distance = _look_up(outlines.distances, characters * len(FONTS) + fonts, x, y) / zoom
    ink = np.clip(0.5 + (distance + pen) / _BLUR, 0.0, 1.0)
    images: Images = (255 * ink + 0.5).astype(np.uint8)
    return images


def _look_up(maps: npt.NDArray[np.int8], which: npt.NDArray[np.intp], x: Floats, y: Floats) -> Floats:
    """Distances at (x, y), measured from the middle of a map, between its pixels by bilinear interpolation."""
    middle = (_ROOM - 1) / 2
    x, y = (np.clip(values + middle, 0, _ROOM - 1.01) for values in (x, y))
    left, top = x.astype(np.int32), y.astype(np.int32)
    across, along = x - left, y - top
    flat = maps.reshape(-1)
    first = which.astype(np.int32)[:, None, None] * _ROOM**2 + top * _ROOM + left
    upper = flat[first] * (1 - across) + flat[first + 1] * across
    lower = flat[first + _ROOM] * (1 - across) + flat[first + _ROOM + 1] * across
    result: Floats = (upper * (1 - along) + lower * along) / _STEPS
    return result


@functools.cache
def _forms() -> npt.NDArray[np.intp]:
    """The two ways to write each class, as places in `_CHARACTERS`: capital and small where EMNIST merged them."""
    forms = [(name, name if name.lower() in CLASS_NAMES else name.lower()) for name in CLASS_NAMES]
    return np.array([[_CHARACTERS.index(one), _CHARACTERS.index(other)] for one, other in forms])


@functools.cache
def _bend_basis() -> Floats:
    """Uniform cubic B-splines at the pixels of one axis: (28, control points)."""
    controls = int((SIDE - 1) / _BEND_SPACING) + 3
    steps = np.abs(np.arange(SIDE)[:, None] / _BEND_SPACING + 1 - np.arange(controls))
    near, far = 2 / 3 - steps**2 * (1 - steps / 2), np.maximum(2 - steps, 0) ** 3 / 6
    return np.where(steps < 1, near, far).astype(np.float32)


@functools.cache
def _outlines() -> _Outlines:
    """Every character of every font, drawn large once in a process."""
    import matplotlib
    from matplotlib.ft2font import FT2Font
    from scipy.ndimage import distance_transform_edt

    distances = np.empty((len(_CHARACTERS), len(FONTS), _ROOM, _ROOM), dtype=np.int8)
    heights, widths = np.empty((2, *distances.shape[:2]), dtype=np.float32)
    for column, name in enumerate(FONTS):
        font = FT2Font(f"{matplotlib.get_data_path()}/fonts/ttf/{name}.ttf")
        font.set_size(_EM, 72)
        for row, character in enumerate(_CHARACTERS):
            font.set_text(character)
            font.draw_glyphs_to_bitmap()
            picture = np.asarray(font.get_image()) >= 128
            picture = picture[picture.any(axis=1)][:, picture.any(axis=0)]
            top, left = ((_ROOM - side) // 2 for side in picture.shape)
            inside = np.zeros((_ROOM, _ROOM), dtype=bool)
            inside[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
            # The outline runs between the pixels, half a pixel from the nearest of the other kind.
            signed = np.where(inside, distance_transform_edt(inside) - 0.5, 0.5 - distance_transform_edt(~inside))
            distances[row, column] = np.clip(np.rint(signed * _STEPS), -127, 127)
            heights[row, column], widths[row, column] = picture.shape
    return _Outlines(distances, widths, heights)
