"""Whatever conventions an implementation declares, no law is broken by what is right in them: the readings that `make test` leaves out."""

import pytest

from properties.tests.test_declared import LATER, alarms


@pytest.mark.parametrize("later", LATER[1:])
def test_no_alarm_is_false_in_the_other_readings(later):
    assert alarms(later) == []
