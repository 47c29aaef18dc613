/* Every test of the C suite, in the order in which they run. */
