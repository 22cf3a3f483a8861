"""The engine process: schedule -> execute -> sample -> publish, until told to stop."""
