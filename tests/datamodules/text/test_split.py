"""Holding out documents for validation."""

import pytest

from datamodules.text.split import Split, document_hash, survey


def sides(texts: list[str], val_fraction: float = 0.05) -> tuple[list[str], list[str]]:
    """(train, val) texts."""
    split = survey(texts, val_fraction).split
    parts = [part for text in texts for part in split.parts(text)]
    return [text for held_out, text in parts if not held_out], [text for held_out, text in parts if held_out]


def test_documents_are_on_one_side_each_and_stay_there() -> None:
    """No overlap; adding documents moves none of the earlier ones; the share is about what was asked."""
    texts = [f"document {i}" for i in range(2000)]
    train, val = sides(texts)
    assert not set(train) & set(val)
    assert sorted(train + val) == sorted(texts)
    # binomial(2000, 0.05): mean 100, standard deviation 9.7
    assert 100 - 5 * 9.7 < len(val) < 100 + 5 * 9.7
    more_train, more_val = sides(texts[::-1] + [f"new {i}" for i in range(100)])
    assert set(train) <= set(more_train)
    assert set(val) <= set(more_val)


def test_copies_of_a_document_fall_on_the_same_side() -> None:
    """Otherwise a text would be scored that was trained on."""
    train, val = sides([f"document {i % 50}" for i in range(500)], 0.3)
    assert val
    assert not set(train) & set(val)


@pytest.mark.parametrize("count", [2, 3, 10])
@pytest.mark.parametrize("val_fraction", [1e-9, 0.05, 0.999999])
def test_neither_side_is_empty(count: int, val_fraction: float) -> None:
    """With two or more documents each side gets at least one, whatever the fraction."""
    train, val = sides([f"document {i}" for i in range(count)], val_fraction)
    assert train
    assert val
    assert len(train) + len(val) == count


@pytest.mark.parametrize("copies", [1, 3])
def test_a_single_document_is_cut_near_the_fraction_at_a_blank(copies: int) -> None:
    """There is nothing else to hold out than its tail; copies are cut at the same place."""
    text = "some words " * 100
    train, val = sides([text] * copies, 0.1)
    assert len(train) == len(val) == copies
    assert train[0] + val[0] == text
    assert val[0].startswith(("some", "words"))
    assert 0.04 < len(val[0]) / len(text) <= 0.1


def test_a_single_word_is_still_cut() -> None:
    """Without any blank the cut goes through the word; both parts hold text."""
    assert sides(["abcdefghij"], 0.05) == (["abcdefghi"], ["j"])
    assert sides(["ab"], 0.9) == ([""], ["ab"])  # too short to train on is said later, with the sizes


def test_empty_documents_are_counted_and_do_not_take_part() -> None:
    """White space alone is no document; nothing but that is an error."""
    census = survey(["", " \n", "text", "more"], 0.5)
    assert (census.documents, census.empty, census.characters) == (2, 2, 8)
    with pytest.raises(ValueError, match=r"data\.path holds no text: all of its 2 documents are empty"):
        survey(["", "\n"], 0.5)


def test_side_of_a_text_never_changes() -> None:
    """A version with another hash would score a resumed run on text that it was trained on."""
    assert document_hash("document 0") == 0x62DF_0BB2_EFE3_6F1A
    assert list(Split(0x62DF_0BB2_EFE3_6F1A, 0.5).parts("document 0")) == [(False, "document 0")]
    assert list(Split(0x62DF_0BB2_EFE3_6F1A + 1, 0.5).parts("document 0")) == [(True, "document 0")]
