# MXNet's store over all workers: a round's pushes are summed, and where there is a rule it steps once.
for rust python c perl
mode async
store dist_sync
init w 1 2 3
pull w 1 2 3 + 0 0 0
push w 1 1 0.5
pull w 0 0 0 + 1 1 0.5
push w 2 0 0
pull w 0 0 0 + 2 0 0
fails UnknownKey push never 1
fails ShapeMismatch push w 1 2
init v 10 20
rule sgd learning_rate=0.5
push v 2 4
pull v 10 20 + -1 -2
