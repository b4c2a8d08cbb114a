# One worker of a job of any size: the numbers of MXNet's nightly tests of distributed stores. Prints "fine" at the end.
use strict;
use warnings;
use PDL;
use AI::MXNet qw(mx);
use Syncline ();

sub check { my ($truth, $name) = @_; die "$name\n" unless $truth }
sub same { my ($array, $wanted, $name) = @_; my $pdl = $array->aspdl; die "$name: $pdl, wanted $wanted\n" unless (abs($pdl - $wanted) < 1e-4 * (1 + abs(pdl($wanted))))->all }

my $kv = mx->kv->create('dist_sync');
my ($rank, $workers) = ($kv->rank, $kv->num_workers);
my ($small, $large) = ([2, 3], [1200, 1200]);
my $rounds = 7;

# Keys in any order on any worker.
my %value = (3 => $small, 99 => $large, small_double => $small);
for my $key ($rank % 2 ? sort keys %value : reverse sort keys %value) {
    $kv->init($key, mx->nd->ones($value{$key}, dtype => $key eq 'small_double' ? 'float64' : 'float32') * ($rank == 0 ? 1 : 77));
}
$kv->init('rows', mx->nd->ones($small)->tostype('row_sparse'));
$kv->init('big_rows', mx->nd->ones($large)->tostype('row_sparse'));
$kv->set_optimizer(mx->optimizer->Test(rescale_grad => 2));

for my $round (0 .. $rounds - 1) {
    my $wanted = ($workers + 1) * $workers * 2 / 2 * ($round + 1) + 1;
    for my $key (sort keys %value) {
        my $dtype = $key eq 'small_double' ? 'float64' : 'float32';
        $kv->push($key, mx->nd->ones($value{$key}, dtype => $dtype) * ($rank + 1));
        my $out = mx->nd->zeros($value{$key}, dtype => $dtype);
        $kv->pull($key, out => $out);
        same($out, $wanted, "default key $key, round $round");
    }
}

# Row-sparse: worker r has row r % 2.
for my $round (0 .. $rounds - 1) {
    my $gradient = mx->nd->sparse->row_sparse_array([(ones(float, 3, 1) * ($rank + 1)), [$rank % 2]], shape => $small);
    $kv->push('rows', $gradient);
    my $out = mx->nd->sparse->zeros('row_sparse', $small);
    my @ids = grep { rand() < 0.7 } 0, 1;
    $kv->row_sparse_pull('rows', out => $out, row_ids => mx->nd->array(\@ids, dtype => 'int64'));
    my %asked = map { $_ => 1 } @ids;
    for my $row (0, 1) {
        my $sum = 0;
        $sum += ($_ + 1) * 2 * ($round + 1) for grep { $_ % 2 == $row } 0 .. $workers - 1;
        my $got = $out->aspdl->at(0, $row);
        check($got == ($asked{$row} ? 1 + $sum : 0), "row $row of round $round is $got");
    }
}

# Big row-sparse: worker k takes every 2(k + 1)-th row. A push without rows counts as this worker's contribution.
my @mine = grep { $_ % (2 * ($rank + 1)) == 0 } 0 .. $large->[0] - 1;
$kv->push('big_rows', mx->nd->sparse->row_sparse_array([ones(float, $large->[1], scalar @mine), \@mine], shape => $large));
$kv->push('big_rows', mx->nd->sparse->zeros('row_sparse', $large));
my $all = mx->nd->sparse->zeros('row_sparse', $large);
$kv->row_sparse_pull('big_rows', out => $all, row_ids => mx->nd->array([0 .. $large->[0] - 1], dtype => 'int64'));
my $pulled = $all->aspdl;
for my $row (0 .. $large->[0] - 1) {
    my $from = grep { $row % (2 * ($_ + 1)) == 0 } 0 .. $workers - 1;
    check($pulled->at(5, $row) == 1 + 2 * $from, "big row $row");
}
my $none = mx->nd->ones($small)->tostype('row_sparse');
$kv->row_sparse_pull('rows', out => $none, row_ids => mx->nd->array([], dtype => 'int64'));
same($none, 0, 'no ids');

# Compression in a store of its own.
{
    my $two = mx->kv->create('dist_sync');
    $two->set_gradient_compression({ type => '2bit', threshold => 0.5 });
    $two->init($_, mx->nd->zeros($value{$_})) for 3, 99;
    $two->set_optimizer(mx->optimizer->Test(rescale_grad => 2));
    my $n = $workers;
    for my $key (3, 99) {
        my $out = mx->nd->ones($value{$key});
        my $step = sub { my ($push, $wanted, $name) = @_; $two->push($key, mx->nd->full($value{$key}, $push)); $two->pull($key, out => $out); same($out, $wanted, "2bit: $name") };
        $two->pull($key, out => $out);
        same($out, 0, '2bit: before');
        $step->(0, 0, 'zeros');
        $step->(0.4, 0, '0.4');
        $step->(0.1, 0.5 * 2 * $n, '0.1');
        $step->(0.2, 0.5 * 2 * $n, '0.2');
        $step->(0.3, 2 * 0.5 * 2 * $n, '0.3');
        $step->(0.5, 3 * 0.5 * 2 * $n, '0.5');
    }
    my $one = mx->kv->create('dist_sync');
    $one->set_gradient_compression({ type => '1bit', threshold => 0 });
    $one->init('k', mx->nd->zeros($small));
    $one->set_optimizer(mx->optimizer->Test(rescale_grad => 2));
    my $out = mx->nd->zeros($small);
    my @pushes = ([1, 2 * $n], [-1, 0], [2, 2 * $n], [0, 4 * $n], [-2, 2 * $n]);
    for my $pair (@pushes) {
        $one->push('k', mx->nd->full($small, $pair->[0]));
        $one->pull('k', out => $out);
        same($out, $pair->[1], "1bit: $pair->[0]");
    }
}

# Many keys, and one that nobody made.
for my $i (0 .. 99) { $kv->init("small $i", mx->nd->full($small, $i)); $kv->init("big $i", mx->nd->full([40, 40], $i)) }
for my $i (0 .. 99) { my $out = mx->nd->zeros([40, 40]); $kv->pull("big $i", out => $out); same($out, $i, "key $i of many") }
check(!eval { $kv->pull('nobody', out => mx->nd->zeros($small), ignore_sparse => 0); 1 } && $@->kind eq 'UnknownKey', 'an unknown key');

# A trainer's step: y = (r + 1) w, w = ones, learning rate 1.
{
    my $trainer = mx->kv->create('dist_sync');
    $trainer->init('w', mx->nd->ones($small));
    $trainer->set_optimizer(mx->optimizer->SGD(learning_rate => 1));
    $trainer->push('w', mx->nd->ones($small) * ($rank + 1));
    my $w = mx->nd->zeros($small);
    $trainer->pull('w', out => $w);
    same($w, 1 - (1 + $workers) * $workers / 2, 'trainer step');
}

# Two devices on each worker, pushed and pulled at once.
{
    my $device = mx->kv->create('dist_device_sync');
    $device->init('d', mx->nd->ones($small));
    $device->set_optimizer(mx->optimizer->Test(rescale_grad => 2));
    for my $round (0 .. 2) {
        my @values = map { mx->nd->ones($small, ctx => mx->gpu($_)) * ($rank + 1) } 0, 1;
        $device->pushpull('d', \@values);
        same($_, ($workers + 1) * $workers * 2 * 2 / 2 * ($round + 1) + 1, "devices, round $round") for @values;
    }
}

# Async: pushes count one by one.
{
    my $async = mx->kv->create('dist_async');
    $async->init('a', mx->nd->zeros($small));
    $async->set_optimizer(mx->optimizer->Test);
    $async->push('a', mx->nd->ones($small) * ($rank + 1)) for 1 .. 20;
    $async->_barrier;
    my $out = mx->nd->zeros($small);
    $async->pull('a', out => $out);
    same($out, 20 * $workers * ($workers + 1) / 2, 'async');
}

# Workers that differ are told of both places.
{
    my $error;
    eval { $kv->init('differs', mx->nd->zeros($rank == 0 ? [2] : [3])); 1 } or $error = $@;
    check($rank == 0 || $error && $error->kind eq 'ContractMismatch' && "$error" =~ /store\.pl/, 'shapes that differ: ' . ($error // 'nothing'));
}
my ($sum, $took_part) = Syncline::all_reduce(pdl(double, $rank + 1, 1));
check($sum->at(0) == $workers * ($workers + 1) / 2 && $took_part == $workers, 'all_reduce');
$kv->_barrier;
print "fine\n";
