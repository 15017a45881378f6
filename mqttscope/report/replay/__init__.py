"""Reports of replays: the plan, what happened, what differs, how long things took."""
