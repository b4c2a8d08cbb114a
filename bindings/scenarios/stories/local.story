# MXNet's store in the memory of one process: a push takes the value's place, or is what the rule steps by.
for rust python c perl
mode async
store local
init w 1 2 3
push w 4 5 6
pull w 4 5 6 + 0 0 0
rule sgd learning_rate=0.5
push w 2 2 2
pull w 3 4 5 + 0 0 0
fails UnknownKey pull never 1 + 0
