"""The commands of `headway`, one module for each subject. Imports the rest of `cli` but `app.py`, mostly when a command runs."""
