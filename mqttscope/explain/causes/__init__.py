"""What may have ended a connection: each function looks at one case and gives the causes that fit."""
