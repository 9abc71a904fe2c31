"""The pages of the console, one module each; `service/console/__init__.py` says how one is made."""
