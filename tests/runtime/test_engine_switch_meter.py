"""Pause and gap of a switch."""

import pytest

from firsttoken_runtime.engine.switch_meter import SwitchMeter


def test_pause_ends_with_the_first_step() -> None:
    meter = SwitchMeter()
    meter.note_step(1.0)
    assert meter.pause_s == 0.0, "no switch, no pause"
    meter.note_switch(10.0, {})
    meter.note_step(10.25)
    meter.note_step(17.0)
    assert meter.pause_s == 0.25


def test_the_gap_is_the_largest_of_the_streams_that_ran() -> None:
    meter = SwitchMeter()
    meter.note_switch(10.0, {1: 9.9, 2: 9.5, 3: 9.0})
    meter.note_tokens([1, 7], 10.4)
    assert meter.gap_s == pytest.approx(0.5)
    meter.note_tokens([1, 2], 11.0)
    assert meter.gap_s == pytest.approx(1.5)
    meter.forget_all_but(lambda sequence_id: sequence_id != 3)
    meter.note_tokens([1, 2, 3], 99.0)
    assert meter.gap_s == pytest.approx(1.5), "only the first token after the switch counts"


def test_a_second_switch_starts_anew() -> None:
    meter = SwitchMeter()
    meter.note_switch(1.0, {1: 0.5})
    meter.note_step(1.5)
    meter.note_tokens([1], 3.0)
    meter.note_switch(5.0, {1: 4.9})
    assert (meter.pause_s, meter.gap_s) == (0.0, 0.0)
    meter.note_step(5.125)
    assert meter.pause_s == 0.125
