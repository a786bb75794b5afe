"""Entry point of a worker process: ``python -m mineru_engine.workers``."""

from mineru_engine.workers.child import main

main()
