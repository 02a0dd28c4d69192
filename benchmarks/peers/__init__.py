"""Peer implementations; they run in a virtual environment of their own and minding never imports them."""
