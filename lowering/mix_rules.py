"""The rules of llama.cpp's mixtures as a table: by the role of a matrix, which format it has where."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from helmsman.schemas.formats import NamedMix, StoredFormat

Share = Literal["grouped", "grouped-or-experts", "8-experts", "70b"]
"""Facts of a model: four query heads or more share keys; or it has four experts or more; exactly eight; 80 layers."""

When = Literal["always", "first-eighth", "first-sixteenth", "first-two", "first-four", "middle", "more-bits"] | Share
"""Where a rule holds. `more-bits`: in the first and the last eighth, and in every third between."""

Rules = tuple[tuple[When, StoredFormat], ...]
"""The first that holds says the format."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A mixture: the format of most matrices, of the output and of the embedding (None: as most), and rules by role.

    `counted`: matrices are numbered as they come, also where a layer has several; `written`: whether Helm writes such
    files, and multiplies all of them."""

    base: StoredFormat
    rules: Mapping[str, Rules] = field(default_factory=dict)
    output: StoredFormat = "q6_k"
    embedding: StoredFormat | None = None
    counted: bool = False
    written: bool = False


OF_EIGHT: Mapping[str, tuple[StoredFormat | None, StoredFormat | None]] = {
    "values": ("q8_0", "q4_k"),
    "keys": ("q8_0", "q4_k"),
    "out": (None, "q5_k"),
}
"""Formats by role of models with eight experts, in mixtures of more and of at most two bits; None: by the rules of
`ROLE of 8`, or else of the role."""

_FIVE: Rules = (("always", "q5_k"),)
_OUT_OF_8 = {"out of 8": _FIVE}
_ONE_OR_TWO: Mapping[str, Rules] = {
    "values": (("grouped-or-experts", "q4_k"), ("always", "q2_k")),
    "down": (("first-eighth", "q2_k"),),
}
_UPPER_TWO: Mapping[str, Rules] = {
    "values": (("grouped-or-experts", "q4_k"), ("always", "iq3_s")),
    "down": (("first-eighth", "iq3_s"),),
    "out": (("always", "iq3_s"),),
}
_ONE = {**_ONE_OR_TWO, "out": (("always", "iq2_xxs"),)}
_IQ4: Mapping[str, Rules] = {"values": (("grouped", "q5_k"),), "down": (("first-eighth", "q5_k"),), **_OUT_OF_8}
_MIDDLE: Rules = (("middle", "iq3_xxs"),)
_XS: Rules = (("always", "iq3_xxs"),)
_MORE: Mapping[str, Rules] = {"values": (("more-bits", "q6_k"),), "down": (("more-bits", "q6_k"),)}


def _at_most_two(base: StoredFormat, rules: Mapping[str, Rules], embedding: StoredFormat) -> Mix:
    return Mix(base, rules, output="q5_k", embedding=embedding, counted=True)


MIXES: Mapping[NamedMix, Mix] = {
    "iq1_s": _at_most_two("iq1_s", _ONE, "q2_k"),
    "iq1_m": _at_most_two("iq1_m", _ONE, "q2_k"),
    "iq2_xxs": _at_most_two("iq2_xxs", _ONE_OR_TWO, "q2_k"),
    "iq2_xs": _at_most_two("iq2_xs", _ONE_OR_TWO, "q2_k"),
    "iq2_s": _at_most_two("iq2_xs", _UPPER_TWO, "iq3_s"),
    "iq2_m": _at_most_two("iq2_s", _UPPER_TWO, "iq3_s"),
    "iq3_xxs": Mix(
        "iq3_xxs",
        {"values": (("grouped", "q4_k"),), "keys": (("always", "iq2_s"),), "queries": (("always", "iq2_s"),),
         "out": (("always", "iq3_s"),), **_OUT_OF_8},
        output="q5_k",
        embedding="iq3_s",
    ),
    "iq3_xs": Mix(
        "iq3_s",
        {"values": (("grouped", "q4_k"),), "keys": _XS, "queries": _XS, "gate": _MIDDLE, "up": _MIDDLE, **_OUT_OF_8},
    ),
    "iq3_s": Mix("iq3_s", {"values": (("grouped", "q4_k"),), **_OUT_OF_8}),
    "iq3_m": Mix(
        "iq3_s",
        {"values": (("always", "q4_k"),), "down": (("first-eighth", "q4_k"),), "out": (("always", "q4_k"),),
         "down of 8": (("more-bits", "q4_k"),), **_OUT_OF_8},
    ),
    "iq4_xs": Mix("iq4_xs", _IQ4),
    "iq4_nl": Mix("iq4_nl", _IQ4),
    "q2_k": Mix(
        "q2_k",
        {"values": (("grouped", "q4_k"), ("always", "q3_k")), "down": (("always", "q3_k"),),
         "out": (("always", "q3_k"),), **_OUT_OF_8},
    ),
    "q2_k_s": Mix("q2_k", {"values": (("grouped", "q4_k"),), "down": (("first-eighth", "q4_k"),)}),
    "q3_k_s": Mix("q3_k", _OUT_OF_8),
    "q3_k_m": Mix(
        "q3_k",
        {"values": (("first-two", "q5_k"), ("always", "q4_k")),
         "down": (("first-sixteenth", "q5_k"), ("always", "q4_k")), "out": (("always", "q4_k"),), **_OUT_OF_8},
    ),
    "q3_k_l": Mix("q3_k", {"values": _FIVE, "down": _FIVE, "out": _FIVE, "out of 8": ()}),
    "q4_1": Mix("q4_1"),
    "q4_k_s": Mix("q4_k", {"values": (("first-four", "q5_k"),), "down": (("first-eighth", "q5_k"),), **_OUT_OF_8}),
    "q4_k_m": Mix("q4_k", {**_MORE, **_OUT_OF_8}, written=True),
    "q5_0": Mix("q5_0"),
    "q5_1": Mix("q5_1"),
    "q5_k_s": Mix("q5_k"),
    "q5_k_m": Mix("q5_k", _MORE),
    "mxfp4": Mix("mxfp4", written=True),
}  # fmt: skip
"""Every mixture by its name."""
