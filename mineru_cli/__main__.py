"""``python -m mineru_cli``."""

from mineru_cli.app import main

main()
