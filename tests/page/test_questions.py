"""Questions: chosen by keyboard, pasted, edited, and refused at the field at fault."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.browser
Visit = Callable[..., Any]

LAYERS = {"Qwen3-8B": 36, "Qwen3-1.7B": 28}
QUICK = "#model=Qwen3-8B&machine=rtx4060-laptop&format=q4_k&method=layer-split"


def test_first_answer_comes_without_a_click(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open()
    visitor.best()
    assert page.inner_text("#verdict-title") == "It fits on the GPU."
    assert page.locator("#verdict .figure").count() == 4
    assert "tokens/s" in page.inner_text("#verdict .figures")
    assert page.locator("#strip .cell").count() == LAYERS["Qwen3-8B"]
    assert page.locator("#memory .tier").count() == 2


def test_a_model_is_chosen_by_typing_and_keys_alone(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(QUICK)
    visitor.best()
    page.focus("#model")
    page.keyboard.press("Control+a")
    page.keyboard.type("qwen3 1.7")
    assert page.get_attribute("#model", "aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    active = page.get_attribute("#model", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    page.keyboard.press("Enter")
    assert page.input_value("#model") == "Qwen3-1.7B"
    assert page.get_attribute("#model", "aria-expanded") == "false"
    page.wait_for_selector("#verdict .echo:has-text('Qwen3-1.7B')")
    visitor.best()
    assert page.locator("#strip .cell").count() == LAYERS["Qwen3-1.7B"]


def test_escape_leaves_the_choice_as_it_was(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(QUICK)
    visitor.best()
    page.focus("#machine")
    page.keyboard.press("Control+a")
    page.keyboard.type("rtx 3090")
    page.keyboard.press("Escape")
    assert page.input_value("#machine") == "rtx4060-laptop"


def test_a_config_is_pasted_and_planned(visit: Visit, config: dict[str, Any]) -> None:
    visitor = visit()
    page = visitor.open(QUICK)
    visitor.best()
    page.click("#model-paste")
    page.fill("#pasted-name", "mine")
    page.fill("#pasted", json.dumps(config))
    page.click("#dialog button[type=submit]")
    page.wait_for_selector("#verdict .echo:has-text('mine')")
    visitor.best()
    assert page.locator("#strip .cell").count() == config["num_hidden_layers"]
    assert page.input_value("#model") == "mine (yours)"


def test_what_is_no_config_is_refused_in_the_dialog(visit: Visit, config: dict[str, Any]) -> None:
    page = visit().open(QUICK)
    page.click("#model-paste")
    page.fill("#pasted", "{")
    page.click("#dialog button[type=submit]")
    page.wait_for_selector("#dialog-fault:has-text('not JSON')")
    page.fill("#pasted", json.dumps({**config, "hidden_size": -1}))
    page.click("#dialog button[type=submit]")
    page.wait_for_selector("#dialog-fault:has-text('hidden')")
    assert page.locator("#dialog[open]").count() == 1


def test_an_edited_number_changes_the_answer_and_is_called_yours(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(QUICK)
    visitor.best()
    before = page.inner_text("#verdict .figure .value")
    page.click("#machine-edit")
    box = page.locator("#dialog fieldset", has_text="GPU, RTX 4060 Laptop").get_by_label("Reads its memory")
    assert box.input_value() == "218 GB/s"
    box.fill("436 GB/s")
    page.click("#dialog button[type=submit]")
    page.wait_for_function(
        "before => document.querySelector('#verdict .figure .value').innerText !== before", arg=before
    )
    visitor.best()
    page.click("#sources details summary")
    assert page.locator("#sources details tr", has_text="GPU: reading its memory").inner_text().split("\t")[1:3] == [
        "436 GB/s",
        "yours",
    ]


def test_a_machine_is_made_of_parts(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(QUICK)
    visitor.best()
    page.click("#machine-parts")
    page.fill("#part-gpu", "RTX 3090")
    page.fill("#part-cpu", "AMD Ryzen 9 5950X")
    page.fill("#part-ram", "64 GB")
    page.click("#dialog button[type=submit]")
    page.wait_for_selector("#verdict .echo:has-text('RTX 3090')")
    visitor.best()
    assert "RTX 3090" in page.inner_text("#memory")


def test_what_does_not_fit_says_why_and_what_would_help(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open("#model=Llama-3.1-70B&machine=rtx4060-laptop&format=f16")
    page.wait_for_selector("#verdict[data-state=misfit][aria-busy=false]")
    assert page.inner_text("#verdict-title") == "It does not fit."
    assert "more in RAM would do" in page.inner_text("#verdict")
    assert page.locator("#verdict .lacks li").count() >= 1
    assert not page.is_visible("#alternatives")
    page.click("#verdict .help button:has-text('Q4_K_M')")
    assert page.input_value("#format") == "q4_k_m"


@pytest.mark.parametrize(
    ("field", "fault", "text", "words"),
    [
        ("#prompt", "#prompt-fault", "many", "prompt"),
        ("#answer-tokens", "#answer-fault", "0", ""),
        ("#model", "#model-fault", "no such model", "unknown"),
    ],
)
def test_a_bad_value_is_refused_at_its_field(visit: Visit, field: str, fault: str, text: str, words: str) -> None:
    visitor = visit()
    page = visitor.open(QUICK)
    visitor.best()
    page.fill(field, text)
    page.keyboard.press("Enter")
    page.locator(field).blur()
    page.wait_for_selector(f"{fault}:not([hidden])")
    assert page.get_attribute(field, "aria-invalid") == "true"
    assert fault[1:] in (page.get_attribute(field, "aria-describedby") or "")
    assert words in page.inner_text("#verdict").lower()
    assert "stale" in (page.get_attribute("#strip", "class") or ""), "the last good answer stays, dimmed"
    assert page.locator("#strip .cell").count() > 0


def test_the_context_follows_a_model_that_has_less(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(f"{QUICK}&context=8192")
    visitor.best()
    page.fill("#model", "opt-1.3b")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#verdict:not(.stale) .echo:has-text('opt-1.3b')")
    assert page.get_attribute("#slider-context", "aria-valuetext") == "2k tokens"


def test_an_engine_is_chosen_with_its_settings(visit: Visit) -> None:
    """The answer is that engine's own, whatever the method; its settings are offered first, and the link keeps it."""
    visitor = visit()
    page = visitor.open(QUICK)
    visitor.best()
    page.wait_for_selector("#engine option[value=vllm]", state="attached")
    page.select_option("#engine", "llama.cpp")
    page.wait_for_selector("#verdict .badge:has-text('as llama.cpp runs it')")
    visitor.best()
    assert page.locator("#method").is_disabled()
    page.locator("#engines").scroll_into_view_if_needed()
    page.wait_for_selector("#engines .command:has-text('llama-server')")
    assert page.get_attribute("#engine-choices [data-engine='llama.cpp']", "aria-pressed") == "true"
    page.wait_for_function("() => location.hash.includes('engine=llama.cpp')")
    again = visit()
    again.open(page.url.partition("/")[2].partition("/")[2].partition("/")[2])
    again.page.wait_for_selector("#verdict .badge:has-text('as llama.cpp runs it')")
    assert again.page.input_value("#engine") == "llama.cpp"


def test_methods_are_those_of_the_service(visit: Visit) -> None:
    """One that the page has no words for has the service's; one of a link that is not there is refused at its field."""
    visitor = visit()
    page = visitor.page
    added, entries = {"name": "theirs", "about": "what another package added"}, list[Any]()

    def more(route: Any) -> None:
        listed = route.fetch()
        entries[:] = [*listed.json()["entries"], added]
        route.fulfill(response=listed, json={**listed.json(), "entries": entries})

    page.route("**/v1/strategies", more)
    visitor.open(QUICK.replace("layer-split", "nobodys"))
    page.wait_for_selector("#method-fault:not([hidden])", state="attached")
    page.click("#more summary")
    page.wait_for_selector("#method option[value=theirs]", state="attached")
    assert page.input_value("#method") == "nobodys" and page.locator("#method option").count() == len(entries) + 1
    page.select_option("#method", "theirs")
    assert page.inner_text("#method-about") == added["about"]
    page.select_option("#method", "layer-split")
    visitor.best()
    assert "CPU" in page.inner_text("#method-about")
