"""
Everything that is real in a run: a database, the shipped commands, an upstream, the links.

    stage.py      all of it together, for one run
    database.py   a database of the run's own, and what its write-ahead log tells
    decoding.py   the log's lines → transactions; committed.py: transactions → entries
    processes.py  the shipped commands; spawning.py: by exec or by fork; zygote.py: who forks
    settings.py   the product's settings in real time
    upstream.py   the service that jobs call
    senders.py    deliveries over HTTP, jobs over SQL
    links.py      which traffic runs through network.py
"""
