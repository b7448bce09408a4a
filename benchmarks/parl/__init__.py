"""The frontdoor's training: arms with other parts of the reward, three seeds each, and controls without training."""
