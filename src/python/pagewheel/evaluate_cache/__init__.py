"""What cache eviction costs in quality: tasks, the engine that answers them, and the report."""
