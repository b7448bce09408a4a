"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# An example that takes long was interrupted by other processes, or by a machine that slept: that is no defect.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
