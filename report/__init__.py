"""The report of one or several runs as one HTML page: reads run directories, draws figures, needs no network."""
