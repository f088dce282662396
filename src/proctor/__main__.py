"""`python -m proctor`."""

from proctor.cli.main import main

if __name__ == "__main__":
    main()
