"""The rules of the game, the deal, and the UCI files with everything that can be wrong with them."""

from __future__ import annotations

import gzip
import itertools
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl import rng
from dracofl.datasets import poker
from dracofl.errors import DataError

UCI = Path(__file__).parents[2].parent / "shared/data/poker"
needs_uci = pytest.mark.skipif(not UCI.is_dir(), reason=f"the UCI poker files are not in {UCI}")

Card = tuple[int, int]
DECK: list[Card] = [(suit, rank) for suit in range(1, 5) for rank in range(1, 14)]

# How many of the C(52, 5) = 2,598,960 unordered hands are of each class.
EXACT_COUNTS = [1_302_540, 1_098_240, 123_552, 54_912, 10_200, 5_108, 3_744, 624, 36, 4]


def array(*hands: tuple[Card, ...] | list[Card]) -> np.ndarray:
    return np.array(hands, dtype=np.uint8).reshape(len(hands), 10)


def slow_label(hand: list[Card]) -> int:
    """The slow twin: one hand at a time, by the rules as a player would say them."""
    multiplicities = sorted(Counter(rank for _, rank in hand).values(), reverse=True)
    ranks = {rank for _, rank in hand}
    flush = len({suit for suit, _ in hand}) == 1
    royal = ranks == {10, 11, 12, 13, 1}
    straight = royal or any(ranks == set(range(low, low + 5)) for low in range(1, 10))
    if flush and royal:
        return 9
    if flush and straight:
        return 8
    if flush:
        return 5
    if straight:
        return 4
    by_multiplicity = {(4, 1): 7, (3, 2): 6, (3, 1, 1): 3, (2, 2, 1): 2, (2, 1, 1, 1): 1}
    return by_multiplicity.get(tuple(multiplicities), 0)


@st.composite
def runs(draw: st.DrawFn) -> list[Card]:
    """Five ranks in a row, going round the ace (a straight or just not), of one suit or of any."""
    low = draw(st.integers(1, 13))
    one_suit = draw(st.booleans())
    first = draw(st.integers(1, 4))
    suits = [first if one_suit else draw(st.integers(1, 4)) for _ in range(5)]
    return [(suit, (low - 1 + step) % 13 + 1) for step, suit in enumerate(suits)]


def of_one_suit(suit: int) -> st.SearchStrategy[list[Card]]:
    return st.lists(st.integers(1, 13), min_size=5, max_size=5, unique=True).map(
        lambda ranks: [(suit, rank) for rank in ranks]
    )


def of_few_ranks(ranks: list[int]) -> st.SearchStrategy[list[Card]]:
    cards = [(suit, rank) for suit in range(1, 5) for rank in ranks]
    return st.lists(st.sampled_from(cards), min_size=5, max_size=5, unique=True)


hands_of_any_kind = st.one_of(
    st.lists(st.sampled_from(DECK), min_size=5, max_size=5, unique=True),
    runs(),
    st.integers(1, 4).flatmap(of_one_suit),
    st.lists(st.integers(1, 13), min_size=2, max_size=3, unique=True).flatmap(of_few_ranks),
).flatmap(st.permutations)


# --- the rules


@settings(deadline=None, max_examples=500)
@given(st.lists(hands_of_any_kind, min_size=1, max_size=20))
def test_labels_agree_with_the_slow_twin(hands: list[list[Card]]) -> None:
    labels = poker.label_hands(array(*hands))
    assert labels.dtype == np.int32
    assert labels.tolist() == [slow_label(hand) for hand in hands]


@pytest.mark.parametrize(
    ("hand", "label"),
    [
        (((1, 1), (2, 3), (3, 5), (4, 7), (1, 9)), 0),
        (((1, 1), (2, 1), (3, 5), (4, 7), (1, 9)), 1),
        (((1, 1), (2, 1), (3, 5), (4, 5), (1, 9)), 2),
        (((1, 1), (2, 1), (3, 1), (4, 5), (1, 9)), 3),
        (((1, 2), (2, 3), (3, 4), (4, 5), (1, 6)), 4),
        (((1, 1), (2, 2), (3, 3), (4, 4), (1, 5)), 4),
        (((1, 1), (2, 13), (3, 12), (4, 11), (1, 10)), 4),
        (((1, 12), (2, 13), (3, 1), (4, 2), (1, 3)), 0),
        (((2, 1), (2, 3), (2, 5), (2, 7), (2, 9)), 5),
        (((2, 12), (2, 13), (2, 1), (2, 2), (2, 3)), 5),
        (((1, 1), (2, 1), (3, 1), (4, 5), (1, 5)), 6),
        (((1, 1), (2, 1), (3, 1), (4, 1), (1, 5)), 7),
        (((3, 5), (3, 4), (3, 3), (3, 2), (3, 1)), 8),
        (((3, 9), (3, 13), (3, 12), (3, 11), (3, 10)), 8),
        (((4, 1), (4, 13), (4, 12), (4, 11), (4, 10)), 9),
    ],
)
def test_label_of_a_well_known_hand(hand: tuple[Card, ...], label: int) -> None:
    assert poker.label_hands(array(hand)).tolist() == [label]


def test_every_class_is_as_frequent_in_the_whole_deck_as_combinatorics_says() -> None:
    cards = np.fromiter(
        itertools.chain.from_iterable(itertools.combinations(range(52), 5)), np.uint8, 5 * sum(EXACT_COUNTS)
    ).reshape(-1, 5)
    hands = np.empty((len(cards), 10), np.uint8)
    hands[:, 0::2], hands[:, 1::2] = cards // 13 + 1, cards % 13 + 1
    assert np.bincount(poker.label_hands(hands)).tolist() == EXACT_COUNTS


def test_labelling_no_hands_gives_no_labels() -> None:
    assert poker.label_hands(np.empty((0, 10), np.uint8)).shape == (0,)


def test_hands_of_another_shape_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"hands have shape \(3, 9\); it must be \(n, 10\)"):
        poker.label_hands(np.ones((3, 9), np.uint8))


# --- the deal


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(0, 200))
def test_a_dealt_hand_is_five_different_cards_of_the_deck(seed: int, count: int) -> None:
    hands = poker.deal(rng.generator(seed, "test"), count)
    assert hands.shape == (count, 10)
    assert hands.dtype == np.uint8
    for hand in hands.tolist():
        cards = set(zip(hand[0::2], hand[1::2], strict=True))
        assert len(cards) == 5
        assert cards <= set(DECK)


def test_a_longer_deal_begins_with_the_shorter_one() -> None:
    shorter, longer = (poker.deal(rng.generator(3, "test"), count) for count in (1_001, 5_000))
    np.testing.assert_array_equal(shorter, longer[:1_001])


def test_every_card_is_as_likely_as_any_other_in_every_position_and_pair_of_positions() -> None:
    count = 300_000
    hands = poker.deal(rng.generator(0, "test"), count).astype(np.int64)
    cards = (hands[:, 0::2] - 1) * 13 + hands[:, 1::2] - 1
    for position in range(5):
        frequencies = np.bincount(cards[:, position], minlength=52)
        expected = count / 52
        # 51 degrees of freedom: mean 51, standard deviation 10.
        assert ((frequencies - expected) ** 2 / expected).sum() < 51 + 5 * 10.1
    for one, other in itertools.combinations(range(5), 2):
        frequencies = np.bincount(cards[:, one] * 52 + cards[:, other], minlength=52 * 52)
        assert frequencies.reshape(52, 52).trace() == 0
        expected = count / (52 * 51)
        statistic = ((frequencies - expected) ** 2 / expected).sum() - 52 * expected
        assert abs(statistic - 2651) < 5 * np.sqrt(2 * 2651)


def test_dealt_classes_are_as_frequent_as_the_game_has_it() -> None:
    count = 500_000
    frequencies = np.bincount(poker.label_hands(poker.deal(rng.generator(1, "test"), count)), minlength=10)
    expected = np.array(EXACT_COUNTS) / sum(EXACT_COUNTS) * count
    assert (np.abs(frequencies - expected) < 5 * np.sqrt(expected) + 3).all()


def test_generated_set_has_the_sizes_asked_for_and_true_labels() -> None:
    made = poker.generate(7, 300, 200, 100)
    assert (len(made.train), len(made.test), len(made.validation)) == (300, 200, 100)
    assert (made.classes, made.features) == (10, 85)
    for split in (made.train, made.test, made.validation):
        hands = [list(zip(row[0::2], row[1::2], strict=True)) for row in split.inputs.tolist()]
        assert split.labels.tolist() == [slow_label(hand) for hand in hands]


def test_more_training_samples_leave_the_rest_as_it_was() -> None:
    few, many = poker.generate(7, 100, 50, 50), poker.generate(7, 1_000, 50, 50)
    np.testing.assert_array_equal(few.test.inputs, many.test.inputs)
    np.testing.assert_array_equal(few.validation.inputs, many.validation.inputs)
    np.testing.assert_array_equal(few.train.inputs, many.train.inputs[:100])


def test_splits_and_seeds_differ() -> None:
    one, two = poker.generate(7, 100, 100, 100), poker.generate(8, 100, 100, 100)
    assert (one.train.inputs != one.test.inputs).any()
    assert (one.test.inputs != one.validation.inputs).any()
    assert (one.train.inputs != two.train.inputs).any()


# --- features


def test_encoded_hand_is_one_hot_in_every_suit_and_rank() -> None:
    hands = poker.deal(rng.generator(2, "test"), 500)
    features = poker.encode(hands)
    assert features.shape == (500, 85)
    assert features.dtype == np.float32
    assert (features.sum(axis=1) == 10).all()
    by_card = features.reshape(500, 5, 17)
    np.testing.assert_array_equal(by_card[..., :4].argmax(axis=2) + 1, hands[:, 0::2])
    np.testing.assert_array_equal(by_card[..., 4:].argmax(axis=2) + 1, hands[:, 1::2])


def test_jax_encodes_as_numpy_does_traced_or_not() -> None:
    hands = poker.deal(rng.generator(2, "test"), 100)
    for encode in (poker.encode, jax.jit(poker.encode), jax.vmap(poker.encode)):
        features = encode(jnp.asarray(hands))
        assert features.dtype == jnp.float32
        np.testing.assert_array_equal(np.asarray(features), poker.encode(hands))


def test_batches_of_batches_can_be_encoded() -> None:
    hands = poker.deal(rng.generator(2, "test"), 12).reshape(3, 4, 10)
    assert poker.encode(hands).shape == (3, 4, 85)


# --- the files

TRAINING, TESTING = "poker-hand-training-true.data", "poker-hand-testing.data"
PAIR = b"1,1,2,1,3,5,4,7,1,9,1"
FLUSH = b"2,1,2,3,2,5,2,7,2,9,5"


def text_of(count: int, newline: bytes = b"\r\n") -> bytes:
    hands = poker.deal(rng.generator(5, "test-file"), count)
    table = np.column_stack([hands, poker.label_hands(hands)])
    return b"".join(",".join(map(str, row)).encode() + newline for row in table.tolist())


def write(folder: Path, training: bytes = PAIR, testing: bytes = FLUSH) -> Path:
    (folder / TRAINING).write_bytes(training)
    (folder / TESTING).write_bytes(testing)
    return folder


def complaint(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        poker.read(folder)
    return str(caught.value)


@needs_uci
def test_the_uci_files_read_fast_and_have_the_known_histogram() -> None:
    started = time.perf_counter()
    uci = poker.read(UCI)
    assert time.perf_counter() - started < 2.0
    assert len(uci.train) == 25_010
    assert np.bincount(uci.train.labels).tolist() == [12493, 10599, 1206, 513, 93, 54, 36, 6, 5, 5]
    assert uci.train.inputs[0].tolist() == [1, 10, 1, 11, 1, 13, 1, 12, 1, 1]
    assert (len(uci.test), len(uci.validation)) == (10_000, 89_998)
    assert uci.test.inputs[0].tolist() == [1, 1, 1, 13, 2, 4, 2, 3, 1, 12]
    assert uci.train.inputs.dtype == np.uint8


@needs_uci
def test_a_uci_file_cut_off_says_after_which_line(tmp_path: Path) -> None:
    whole = (UCI / f"{TRAINING}.gz").read_bytes()
    (tmp_path / f"{TRAINING}.gz").write_bytes(whole[: len(whole) // 2])
    message = complaint(tmp_path)
    assert message.startswith(f"{tmp_path / TRAINING}.gz: the gzip file is broken off or damaged after line 1")
    assert "get it again from UCI Poker Hand" in message


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_written_is_read(tmp_path: Path, newline: bytes, packed: bool) -> None:
    made = text_of(12_000, newline)
    for name in (TRAINING, "poker-hand-testing-some.data"):
        (tmp_path / (name + ".gz" * packed)).write_bytes(gzip.compress(made) if packed else made)
    data = poker.read(str(tmp_path))
    hands = poker.deal(rng.generator(5, "test-file"), 12_000)
    np.testing.assert_array_equal(data.train.inputs, hands)
    np.testing.assert_array_equal(data.train.labels, poker.label_hands(hands))
    np.testing.assert_array_equal(data.test.inputs, hands[:10_000])
    np.testing.assert_array_equal(data.validation.inputs, hands[10_000:])


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b"\r", b"\n\n\r\n"])
def test_the_last_line_may_end_as_it_likes(tmp_path: Path, ending: bytes) -> None:
    data = poker.read(write(tmp_path, PAIR + b"\n" + FLUSH + ending))
    assert data.train.labels.tolist() == [1, 5]
    assert len(data.validation) == 0


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            b"1,1,2,1,3,5,4,7,1",
            "'1,1,2,1,3,5,4,7,1' is not a hand; a row is 11 integers S1,C1,...,S5,C5,class",
        ),
        (b"1,1,2,1,3,5,4,7,1,9,1,1", "is not a hand"),
        (b"1,1,2,1,3,5,4,7,1,9,", "is not a hand"),
        (PAIR + b"," + FLUSH, "is not a hand"),
        (b"", "'' is not a hand"),
        (b"one,1,2,1,3,5,4,7,1,9,1", "'one,1,2,1,3,5,4,7,1,9,1' is not a hand"),
        (b"1,1,2,1,3,5,4,7,1,9.0,1", "is not a hand"),
        (b"-1,1,2,1,3,5,4,7,1,9,1", "is not a hand"),
        (b"1;1;2;1;3;5;4;7;1;9;1", "is not a hand"),
        (b"1,1,2,1,3,5,4,7,1,109,1", "is not a hand"),
        (b"\xff\x00" * 50, "...' is not a hand"),
        (b"0,1,2,1,3,5,4,7,1,9,1", "S1 is 0; a suit is 1 to 4"),
        (b"1,1,5,1,3,5,4,7,1,9,1", "S2 is 5; a suit is 1 to 4"),
        (b"1,1,2,1,3,5,4,7,1,14,1", "C5 is 14; a rank is 1 to 13"),
        (b"99,99,99,99,99,99,99,99,99,99,99", "S1 is 99; a suit is 1 to 4"),
        (b"1,1,2,0,3,5,4,7,1,9,1", "C2 is 0; a rank is 1 to 13"),
        (b"1,1,2,1,3,5,2,1,1,9,3", "cards 2 and 4 are both suit 2, rank 1; a hand is five different cards"),
        (b"1,1,2,1,3,5,4,7,1,9,0", "the class is 0, but by the rules the hand is 1 (one pair)"),
        (b"1,1,2,1,3,5,4,7,1,9,10", "the class is 10, but by the rules the hand is 1 (one pair)"),
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_bad_row_is_named_with_file_line_and_what_would_be_right(
    tmp_path: Path, row: bytes, problem: str, newline: bytes
) -> None:
    for folder, files in {
        "train": {"training": newline.join([PAIR, FLUSH, row, PAIR, b""])},
        "test": {"testing": newline.join([PAIR, FLUSH, row, PAIR, b""])},
    }.items():
        (tmp_path / folder).mkdir()
        message = complaint(write(tmp_path / folder, **files))
        name = TRAINING if folder == "train" else TESTING
        assert message.startswith(f"{tmp_path / folder / name}, line 3: ")
        assert problem in message


def test_a_row_cut_off_at_the_end_is_named(tmp_path: Path) -> None:
    assert f"{TRAINING}, line 400: " in complaint(write(tmp_path, text_of(400)[:-8]))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_damage_to_a_row_gets_through_or_crashes(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Any byte changed, put in or taken out: the rows are read by the rules or the line is named."""
    good = PAIR + b"\n" + FLUSH
    at = data.draw(st.integers(0, len(good) - 1))
    new = data.draw(st.one_of(st.binary(max_size=2), st.sampled_from([b",", b"\n", b"1", b"\r\n"])))
    bad = good[:at] + new + good[at + data.draw(st.integers(0, 1)) :]
    folder = write(tmp_path_factory.mktemp("damaged"), bad)
    problem, read = None, None
    try:
        read = poker.read(folder).train
    except DataError as error:
        problem = str(error)
    if read is None:
        assert f"{TRAINING}, line " in str(problem)
    else:
        for hand, label in zip(read.inputs.tolist(), read.labels.tolist(), strict=True):
            cards = list(zip(hand[0::2], hand[1::2], strict=True))
            assert len(set(cards)) == 5
            assert set(cards) <= set(DECK)
            assert slow_label(cards) == label


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\r\n"])
def test_an_empty_file_is_named(tmp_path: Path, content: bytes) -> None:
    message = complaint(write(tmp_path, testing=content))
    assert message.startswith(f"{tmp_path / TESTING} is empty; it must hold a hand a line, 11 integers each")


def test_an_empty_gzip_file_is_named(tmp_path: Path) -> None:
    (tmp_path / f"{TRAINING}.gz").write_bytes(b"")
    assert f"{TRAINING}.gz is empty" in complaint(tmp_path)


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    packed = gzip.compress(text_of(20_000))
    for length in (5, 15, len(packed) // 2, len(packed) - 5):
        (tmp_path / f"{TRAINING}.gz").write_bytes(packed[:length])
        message = complaint(tmp_path)
        assert f"{TRAINING}.gz: the gzip file is broken off or damaged after line " in message


def test_the_lines_before_the_cut_are_counted(tmp_path: Path) -> None:
    packed = gzip.compress(text_of(20_000))
    (tmp_path / f"{TRAINING}.gz").write_bytes(packed[:-5])  # all of the rows, not all of the checksum
    assert "after line 20000 (" in complaint(tmp_path)


@pytest.mark.parametrize("damage", ["garbage", "flipped"])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, damage: str) -> None:
    packed = bytearray(gzip.compress(text_of(2_000)))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / f"{TRAINING}.gz").write_bytes(bytes(packed) if damage == "flipped" else PAIR)
    assert f"{TRAINING}.gz: the gzip file is broken off or damaged" in complaint(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    message = complaint(tmp_path / "nowhere")
    assert message.startswith(f"{tmp_path / 'nowhere'} is not a folder; data.dir must name one")


@pytest.mark.parametrize("name", [TRAINING, TESTING])
def test_a_missing_file_is_named_with_its_source(tmp_path: Path, name: str) -> None:
    (write(tmp_path) / name).unlink()
    pattern = TRAINING if name == TRAINING else "poker-hand-testing*.data"
    message = complaint(tmp_path)
    assert f"{tmp_path} has no {pattern} or {pattern}.gz" in message
    assert "https://archive.ics.uci.edu" in message


def test_several_test_files_are_named(tmp_path: Path) -> None:
    (write(tmp_path) / "poker-hand-testing-more.data.gz").write_bytes(gzip.compress(PAIR))
    message = complaint(tmp_path)
    assert "has 2 files where one is wanted" in message
    assert f"poker-hand-testing-more.data.gz, {TESTING}; leave one" in message


def test_a_training_file_both_plain_and_packed_is_ambiguous(tmp_path: Path) -> None:
    (write(tmp_path) / f"{TRAINING}.gz").write_bytes(gzip.compress(PAIR))
    assert f"{TRAINING}, {TRAINING}.gz; leave one" in complaint(tmp_path)


def test_a_folder_in_the_place_of_a_file_is_an_error_of_the_data(tmp_path: Path) -> None:
    (tmp_path / TRAINING).mkdir()
    assert f"{tmp_path / TRAINING} cannot be read: Is a directory" in complaint(tmp_path)
