# The thread that made a queue asks, any other answers.
for rust python c lua
mode async
queue sums
ask sums 1 2 3
ask sums 4
close sums
work sums 10
drain sums
answers sums 10 20 30 40
