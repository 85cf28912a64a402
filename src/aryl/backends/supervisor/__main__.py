"""`python -m aryl.backends.supervisor`."""

from aryl.backends.supervisor.process import main

raise SystemExit(main())
