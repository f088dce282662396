"""`python -m proctor`."""

from proctor.cli.door import main

if __name__ == "__main__":
    main()
