"""Other people's forms of recorded data, and from one to the other. Reading runs no code and fetches nothing."""
