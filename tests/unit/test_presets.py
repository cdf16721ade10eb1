"""Files of presets are read, or refused with their path."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_srb.tasks.presets import SHIPPED, PresetError, read


def test_the_shipped_presets_are_valid_and_have_descriptions() -> None:
    presets = read([SHIPPED])
    assert len(presets) >= 5
    assert all(preset.about and preset.fields and preset.title for preset in presets.values())


def test_names_are_canonical_and_a_later_folder_overrides_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "hot.toml").write_text('about = "mine"\ntemp = 2\n')
    hot = read([SHIPPED, tmp_path])["hot"]
    assert (hot.about, hot.fields) == ("mine", {"temperature": 2})


def test_a_title_is_the_files_or_made_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "warm-and-calm.toml").write_text("temperature = 0.5\n")
    (tmp_path / "x.toml").write_text('title = "Like rain"\ntemperature = 0.5\n')
    assert [preset.title for preset in read([tmp_path]).values()] == ["Warm and calm", "Like rain"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("temp = -1", "temperature is -1; it must be between 0 and 100"),
        ("tmp = 1", '"tmp" is not a known field; did you mean "temp"?'),
        ("temp", "Expected"),
        ('preset = "hot"', "preset"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_path(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(PresetError) as error:
        read([tmp_path])
    assert str(error.value).startswith(str(tmp_path / "mine.toml"))
    assert why in str(error.value)
