"""`headway doctor`: looks at an installation and lists what is wrong, each with the mend."""
