"""How jobs slow each other down: small models, composed by multiplication."""
