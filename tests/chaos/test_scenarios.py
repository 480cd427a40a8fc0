from tests.chaos.conftest import told


def test_a_scenario_passes(scenario_file, play):
    result = play(scenario_file)

    assert result.judgement.verdict == "pass", told(result, scenario_file)
