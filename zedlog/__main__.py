"""`python -m zedlog`: the command `zedlog`."""

from service.cli.main import main

if __name__ == "__main__":
    main()
