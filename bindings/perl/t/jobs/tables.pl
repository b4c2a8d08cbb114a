# Tables of a job: sums of all workers, in rounds.
use strict;
use warnings;
use PDL;
use Syncline;

Syncline::init(sync => 1);
my ($me, $workers) = (Syncline::worker_id(), Syncline::num_workers());
my $array = Syncline::ArrayTable->new(1000, $me == 0 ? ones(float, 1000) * 5 : undef, name => 'weights');
my $delta = sequence(float, 1000) + 1;
for my $round (1 .. 10) {
    $array->add($delta);
    $array->add($delta);
    die "array, round $round" unless ($array->get == 5 + $delta * $round * 2 * $workers)->all;
}
my $matrix = Syncline::MatrixTable->new(6, 2, undef, dtype => 'float64');
$matrix->add(ones(2, 3), row_ids => [4, 0, 4]);
my $got = $matrix->get(row_ids => [4, 1, 0]);
die "rows: $got" unless "@{[$got->list]}" eq join ' ', map { $_ * $workers } 2, 2, 0, 0, 1, 1;
die 'aggregate' unless Syncline::aggregate(pdl(double, $me + 1), 'max')->sclr == $workers;
my $error = eval { $array->add(ones(5)); 1 } ? 'nothing' : $@->kind;
die "a wrong size: $error" unless $error eq 'ShapeMismatch';
Syncline::barrier();
Syncline::shutdown();
die 'closed' if eval { Syncline::barrier(); 1 } || $@->kind ne 'Closed';
print "fine\n";
