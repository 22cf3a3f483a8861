from firsttoken_api import flags


def test_names_are_unique_and_known_where_they_are_named() -> None:
    assert len(flags.BY_NAME) == len(flags.FLAGS)
    for flag in flags.FLAGS:
        assert {*flag.needs, *flag.excludes} <= flags.BY_NAME.keys(), flag.name
        assert flag.name not in {*flag.needs, *flag.excludes}


def test_exclusion_is_mutual() -> None:
    for flag in flags.FLAGS:
        for other in flag.excludes:
            assert flag.name in flags.BY_NAME[other].excludes


def test_risk_grows_down_the_table() -> None:
    classes = [flag.flag_class for flag in flags.FLAGS]
    assert classes.index(flags.FlagClass.EXACT) < classes.index(flags.FlagClass.CLOSE)
    assert classes.index(flags.FlagClass.CLOSE) < classes.index(flags.FlagClass.LOSSY)


def test_what_a_built_flag_needs_is_built() -> None:
    for name in flags.BUILT:
        assert set(flags.BY_NAME[name].needs) <= set(flags.BUILT)


def test_defaults_lie_in_their_ranges() -> None:
    for flag in flags.FLAGS:
        for parameter in flag.parameters:
            if parameter.minimum is not None and parameter.default.isdecimal():
                assert parameter.minimum <= int(parameter.default), parameter
            if parameter.maximum is not None and parameter.default.isdecimal():
                assert int(parameter.default) <= parameter.maximum, parameter
            if parameter.built:
                assert flag.built
