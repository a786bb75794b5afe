"""Many documents on one event loop: loop thread, worker pool, registry."""
