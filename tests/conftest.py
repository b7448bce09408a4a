"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# An example may take long because of other processes or a suspended machine, which is not a defect.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
