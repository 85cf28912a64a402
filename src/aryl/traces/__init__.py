"""Job traces and demand curves: reading, checking, completing, describing, sampling and drawing them."""
