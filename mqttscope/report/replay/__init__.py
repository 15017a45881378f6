"""Reports of replays: plan, results, differences, latencies."""
