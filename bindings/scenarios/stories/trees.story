# What the nodes of a tree do together beside reducing: node k brings k times the numbers.
mode async
broadcast 1 1.5 -2 3
broadcast last 1 2
meet
gather 1 1 2
gather last 0.5
all_gather 4 5 6
all_to_all 1 -1
meet
