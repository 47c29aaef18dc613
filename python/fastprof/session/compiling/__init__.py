"""What compilers do in a run: :mod:`fastprof.session.compiling.part`."""
