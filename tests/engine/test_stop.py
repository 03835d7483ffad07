"""Where a generation ends, and its text up to there: stop tokens and strings, characters in pieces, limits."""

from __future__ import annotations

import random
from contextlib import nullcontext
from itertools import accumulate
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import tiny_engines
from tokenizers.pre_tokenizers import ByteLevel

from specpilot.cost import StepTime
from specpilot.engine.decode import Generation, Request, Result, TextIterator
from specpilot.verify import Step
from specpilot.verify.host_driven import HostDriven
from specpilot.width_policy import Fixed

TOKENIZER = tiny_engines.tokenizer()
EOS = TOKENIZER.eos_token_id
CONTEXT = 4000


def tokens_of(text: str) -> list[int]:
    """By the merges: "hello" is one token, " wo" too."""
    return TOKENIZER(text).input_ids


def bytes_of(text: str) -> list[int]:
    """A token a byte."""
    pieces = ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    return TOKENIZER.convert_tokens_to_ids([c for piece, _ in pieces for c in piece])


class Script(HostDriven):
    """Stands for a verifier: emits given tokens, so many a pass (the last number again and again)."""

    max_width = 16

    def __init__(self, tokens: list[int], passes: tuple[int, ...] = (1,)) -> None:
        self.tokens, self.passes, self.at = tokens, list(passes), 1

    def _run(self, anchor: int, start: int, width: int, narrow) -> Step:
        assert anchor == self.tokens[self.at - 1] and start == self.at  # a prompt of one token
        count = self.passes.pop(0) if len(self.passes) > 1 else self.passes[0]
        emitted = self.tokens[self.at : self.at + min(count, width)]
        self.at += len(emitted)
        return Step(emitted, width, width, StepTime(0.0, 0.0))


def generation(
    tokens: list[int], stop=(), passes=(1,), every_step: bool = True, new: int = 10**6, stop_ids=(EOS,),
    context: int = CONTEXT, tokenizer=TOKENIZER,
) -> Generation:  # fmt: skip
    script = Script([*tokens, *tokens_of(" and more") * 9], passes)
    engine = SimpleNamespace(
        tokenizer=tokenizer,
        max_context=context,
        prefill=lambda prompt, verifier, new_tokens: verifier.tokens[0],
        current=nullcontext,
        acquire=lambda: None,
        release=lambda: None,
    )
    request = Request([0], new, frozenset(stop_ids), stop)
    return Generation(engine, request, script, Fixed(16), every_step)


def finished(tokens: list[int], **options) -> Result:
    """The result, the same for a stream and at once, and for every way in which tokens may come in."""
    results = []
    for passes in ((1,), (3,), (16,), (2, 5, 1, 16)):
        for every_step in (True, False):
            found = generation(tokens, passes=passes, every_step=every_step, **options)
            pieces = list(found)
            assert "".join(pieces) == found.result.text
            assert found.result.stats.new_tokens == len(found.result.tokens)
            results.append((found.result.text, found.result.tokens, found.result.finish_reason))
    assert all(r == results[0] for r in results), results
    return found.result


def test_a_stop_token_is_kept_among_the_tokens_and_not_shown():
    hello = tokens_of("hello there")
    result = finished([*hello, EOS])
    assert result.text == "hello there" and result.tokens == [*hello, EOS]
    assert result.finish_reason == "stop"


def test_a_stop_token_may_be_the_first():
    result = finished([EOS])
    assert result.text == "" and result.tokens == [EOS] and result.finish_reason == "stop"
    assert result.stats.passes == 0 and result.stats.tau == 0 and result.stats.tokens_per_second == 0


def test_any_of_several_stop_tokens():
    x = tokens_of("x")[0]
    result = finished([*tokens_of("hello"), x, EOS], stop_ids=(EOS, x))
    assert result.text == "hello" and result.tokens[-1] == x


def test_special_tokens_are_not_shown():
    start = TOKENIZER.convert_tokens_to_ids("<|start|>")
    assert finished([*tokens_of("hello"), start, *tokens_of(" you"), EOS]).text == "hello you"


STOPS = {  # (text, stops) → text given out
    ("one, two, three", (", ",)): "one",  # across tokens
    ("say hello world", ("lo w",)): "say hel",  # from inside a token into the next
    ("say hello world", ("ell",)): "say h",  # inside one token
    ("say hello world", ("say",)): "",  # from the very beginning
    ("a\n\nb", ("\n\n",)): "a",
    ("aab aabb", ("aabb",)): "aab ",  # a false start before the hit
    ("aaaab", ("aaab",)): "a",  # an overlap with itself
    ("abcabd", ("abd", "abcabe")): "abc",  # common beginnings; the longer one fails late
    ("abcde", ("bcdx", "cd")): "ab",  # one dies while the other is found
    ("abcabc", ("c", "abc")): "",  # both complete at once: the one that begins first
    ("no such thing here", ("zzz", "here!")): None,  # never: what was held back comes out
}


@pytest.mark.parametrize(("text", "stops"), STOPS)
@pytest.mark.parametrize("cut", [tokens_of, bytes_of], ids=["merged", "bytes"])
def test_stop_strings(text, stops, cut):
    want = STOPS[text, stops]
    result = finished([*cut(text), EOS], stop=stops)
    assert result.finish_reason == "stop"
    if want is None:
        assert result.text == text and result.tokens[-1] == EOS
        return
    assert result.text == want
    # The token that completes the string is the last one.
    whole = list(accumulate(result.tokens, lambda text, t: text + TOKENIZER.decode([t]), initial=""))
    assert any(s in whole[-1] for s in stops) and not any(s in whole[-2] for s in stops)


def test_what_may_become_a_stop_string_is_held_back():
    found = generation([*bytes_of("ab-stop? ab-stop!"), EOS], stop=("-stop!",))
    pieces = []
    for piece in found:
        pieces.append(piece)
        assert not piece.endswith("-")
    assert "".join(pieces) == found.result.text == "ab-stop? ab" and "-stop?" in pieces


def test_a_stop_token_before_a_stop_string_wins_within_a_pass():
    result = finished([*tokens_of("hello"), EOS, *tokens_of(" stop")], stop=("stop",))
    assert result.text == "hello" and result.tokens[-1] == EOS


def test_a_stop_string_before_a_stop_token_wins_within_a_pass():
    result = finished([*bytes_of("hello stop"), EOS], stop=("stop",))
    assert result.text == "hello " and result.tokens == bytes_of("hello stop")


def test_a_stop_string_that_the_length_cuts_off_is_shown():
    result = finished(bytes_of("hello stop"), stop=("stop",), new=9)
    assert result.text == "hello sto" and result.finish_reason == "length"


TEXTS = [
    "é",
    "naïve café",
    "日本語のテキスト",
    "👍🏽 and 👨‍👩‍👧‍👦!",
    "a\u0301e\u0308",  # combining marks are characters of their own
    "\ufffd is a character, too\ufffd",
    "x" * 100 + "語" * 30,
]


@pytest.mark.parametrize("text", TEXTS)
def test_characters_are_never_given_out_in_part(text):
    for passes in ((1,), (2,), (5,), (16,)):
        found = generation([*bytes_of(text), EOS], passes=passes)
        given = ""
        for piece in found:
            given += piece
            assert text.startswith(given)
        assert given == text == found.result.text


def test_text_that_ends_inside_a_character_shows_that_it_does():
    result = finished(bytes_of("ab 語")[:-1], new=5)
    assert result.text == "ab \ufffd" and result.finish_reason == "length"


def test_stop_strings_of_several_bytes():
    result = finished([*bytes_of("一二三四五"), EOS], stop=("四",))
    assert result.text == "一二三" and result.tokens == bytes_of("一二三四")


def test_bytes_that_are_no_text():
    """Whatever bytes a model emits: pieces add up to what the tokenizer makes of the whole."""
    pick = random.Random(3)
    for _ in range(20):
        tokens = [pick.randrange(256) for _ in range(100)]
        assert finished([*tokens, EOS]).text == TOKENIZER.decode(tokens)


@pytest.mark.parametrize("new", [1, 2, 16, 17, 18, 33])
def test_max_new_tokens(new):
    hello = tokens_of("hello there you " * 20)
    result = finished(hello, new=new)
    assert result.tokens == hello[:new] and result.finish_reason == "length"
    assert result.text == TOKENIZER.decode(hello[:new])


def test_a_stop_token_at_the_limit_is_a_stop():
    assert finished([*tokens_of("abc"), EOS], new=4).finish_reason == "stop"
    assert finished([*tokens_of("abc"), EOS], new=3).finish_reason == "length"


def test_the_end_of_the_context():
    result = finished(bytes_of("x" * 200), context=100)
    assert len(result.tokens) == 99 and result.finish_reason == "length"


def test_without_a_tokenizer_there_are_tokens_only():
    result = finished([*tokens_of("hello"), EOS], tokenizer=None)
    assert result.text == "" and result.tokens == [*tokens_of("hello"), EOS]


def test_ids_that_the_tokenizer_does_not_know():
    result = finished([*tokens_of("hello"), tiny_engines.VOCAB - 1, *tokens_of(" you"), EOS])
    assert result.text == "hello you"


def interrupted_at(pass_number: int, **options) -> Generation:
    found = generation(bytes_of("hello 語, and so on"), **options)
    step, calls = found.verifier._run, iter(range(100))

    def interrupted(*args):
        if next(calls) == pass_number:
            raise KeyboardInterrupt
        return step(*args)

    found.verifier._run = interrupted
    return found


@pytest.mark.parametrize("every_step", [True, False])
@pytest.mark.parametrize("passes", [0, 5, 8])
def test_an_interruption_leaves_what_there_is(every_step, passes):
    found = interrupted_at(passes, every_step=every_step)
    text = "".join(found)
    tokens = bytes_of("hello 語, and so on")[: passes + 1]
    assert found.result.finish_reason == "interrupted" and found.result.tokens == tokens
    assert text == found.result.text == TOKENIZER.decode(tokens)


def test_an_interruption_releases_what_was_held_back():
    found = interrupted_at(5, stop=("o w",))
    assert "".join(found) == found.result.text == "hello "
    found = interrupted_at(4, stop=("o w",))
    assert "".join(found) == found.result.text == "hello"


@pytest.mark.parametrize("stop", [(), ("o w",)])
@pytest.mark.parametrize("after", ["push", "add_pass"])
def test_an_interruption_loses_no_text(after, stop):
    """One that falls behind a step: its text is taken, or taken and counted, and not given out."""
    found = generation(bytes_of("hello 語, and so on"), stop=stop)
    owner, calls = (found._text if after == "push" else found.result.stats), iter(range(100))
    call = getattr(owner, after)

    def interrupted(*args):
        given = call(*args)
        if next(calls) == 4:
            raise KeyboardInterrupt
        return given

    setattr(owner, after, interrupted)
    text = "".join(found)
    assert found.result.finish_reason == "interrupted" and len(found.result.tokens) in (4, 6)
    assert text == found.result.text == TOKENIZER.decode(found.result.tokens)


def test_a_stop_token_is_an_end_though_an_interruption_follows():
    found = generation([*tokens_of("hello"), EOS])
    found.result.stats.add_pass = Mock(side_effect=KeyboardInterrupt)
    assert "".join(found) == found.result.text == "hello"
    assert found.result.finish_reason == "stop" and found.result.tokens[-1] == EOS


def test_a_closed_stream_has_a_result():
    for pieces in (0, 3):
        stream = TextIterator(generation(tokens_of("hello there you all")))
        given = [next(stream) for _ in range(pieces)]
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = stream.result
        stream.close()
        assert stream.result.finish_reason == "interrupted"
        assert stream.result.text == "".join(given) == TOKENIZER.decode(stream.result.tokens)
        assert list(stream) == []
