"""From the events of a run to its outcome, and from outcomes to files, plots and a page."""
