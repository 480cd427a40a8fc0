"""`python -m reliq` is `reliq`."""

from reliq.cli import main

main()
