"""`python -m proctor`."""

from proctor.cli.entry import main

if __name__ == "__main__":
    main()
