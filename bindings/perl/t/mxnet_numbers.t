# The numbers of MXNet's own Perl test of its store, and those of its tutorial.
use strict;
use warnings;
use Test::More;
use PDL;
use AI::MXNet qw(mx);

my $shape = [4, 4];
my @keys = (5, 7, 9);

sub store {
    my ($type) = @_;
    my $kv = mx->kv->create($type // 'local');
    $kv->init(3, mx->nd->zeros($shape));
    $kv->init(\@keys, [map { mx->nd->zeros($shape) } @keys]);
    return $kv;
}

sub all_are { my ($array, $value, $name) = @_; ok((abs($array->aspdl - $value) < 1e-6)->all, $name) }

my $devices = 4;
my @devices = map { mx->cpu($_) } 0 .. $devices - 1;

{
    my $kv = mx->kv->create;
    $kv->init(3, mx->nd->ones($shape) * 4);
    my $a = mx->nd->zeros($shape);
    $kv->pull(3, out => $a);
    all_are($a, 4, 'init: what was given is stored');
    is(mx->kv->create('local_allreduce_cpu')->type, 'local_allreduce_cpu', 'type');
    is_deeply([$kv->type, $kv->rank, $kv->num_workers], ['local', 0, 1], 'a local store is a world of one');
}
{
    my $kv = store();
    $kv->push(3, mx->nd->ones($shape));
    my $value = mx->nd->empty($shape);
    $kv->pull(3, out => $value);
    all_are($value, 1, 'single: a push replaces');
    $kv->push(\@keys, [map { mx->nd->ones($shape) * 4 } @keys]);
    my @values = map { mx->nd->empty($shape) } @keys;
    $kv->pull(\@keys, out => \@values);
    all_are($_, 4, 'list') for @values;
}
{
    my $kv = store();
    my @values = map { mx->nd->ones($shape, ctx => $_) } @devices;
    $kv->push(3, \@values);
    $kv->pull(3, out => \@values);
    all_are($_, $devices, 'aggregator: a sum over devices') for @values;
    my @lists = map { [map { mx->nd->ones($shape, ctx => $_) * 2 } @devices] } @keys;
    $kv->push(\@keys, \@lists);
    $kv->pull(\@keys, out => \@lists);
    all_are($_, 2 * $devices, 'aggregator: a list of them') for map { @$_ } @lists;
}
{
    my $kv = store();
    my @seen;
    $kv->_set_updater(sub { my ($key, $recv, $local) = @_; push @seen, $key; $local += $recv });
    is(ref $kv->_updater, 'CODE', 'the updater can be asked for');
    my @values = map { mx->nd->ones($shape, ctx => $_) } @devices;
    $kv->push(3, \@values);
    my @outs = map { mx->nd->zeros($shape) } @devices;
    $kv->pull(3, out => \@outs);
    all_are($_, $devices, 'updater') for @outs;
    my @lists = map { [map { mx->nd->ones($shape, ctx => $_) } @devices] } @keys;
    my $pushes = 10;
    $kv->push(\@keys, \@lists) for 1 .. $pushes;
    $kv->pull(\@keys, out => \@lists);
    all_are($_, $devices * $pushes, 'updater: ten pushes') for map { @$_ } @lists;
    is_deeply([@seen[0 .. 3]], [3, 5, 7, 9], "the updater sees the user's keys");
}
{
    my $kv = store();
    $kv->init('e', mx->nd->ones($shape)->tostype('row_sparse'));
    srand 7;
    for my $count (1, 4) {
        my (@outs, @ids, @listed);
        for (1 .. $count) {
            push @outs, mx->nd->ones($shape)->tostype('row_sparse');
            push @listed, [map { int rand 4 } 1 .. 4];
            push @ids, mx->nd->array([[@{ $listed[-1] }[0, 1]], [@{ $listed[-1] }[2, 3]]], dtype => 'int64');
        }
        $kv->row_sparse_pull('e', out => $count == 1 ? $outs[0] : \@outs, row_ids => $count == 1 ? $ids[0] : \@ids);
        for my $place (0 .. $count - 1) {
            my %wanted = map { $_ => 1 } @{ $listed[$place] };
            my $dense = $outs[$place]->aspdl;
            is_deeply([map { $dense->at(0, $_) } 0 .. 3], [map { $wanted{$_} ? 1 : 0 } 0 .. 3], 'row_sparse_pull: listed rows, zeros elsewhere');
            is_deeply([$outs[$place]->indices->aspdl->list], [sort keys %wanted], 'and exactly those ids');
        }
    }
}
{
    my $kv = store('row_sparse');
    is($kv->type, 'row_sparse', 'the type that the original takes for a local store');
    $kv->init('d', mx->nd->sparse->zeros('row_sparse', $shape));
    my @values = map { my $which = random(4) > 0.5; mx->nd->array(random(float, 4, 4) * $which->dummy(0))->tostype('row_sparse') } 1 .. 4;
    my $pushed = 0;
    $pushed += $_->aspdl->sum for @values;
    $kv->push('d', \@values);
    my $all = mx->nd->array([0 .. 3], dtype => 'int64');
    $kv->row_sparse_pull('d', out => \@values, row_ids => [map { $all } 1 .. 4]);
    my $result = 0;
    $result += $_->aspdl->sum for @values;
    ok(abs($result - 4 * $pushed) < 1e-4, 'sparse aggregator: four copies of the sum');
}
{
    # The tutorial.
    my $kv = mx->kv->create('local');
    my $shape = [2, 3];
    my $a = mx->nd->zeros($shape);
    $kv->init(3, mx->nd->ones($shape) * 2);
    $kv->pull(3, out => $a);
    all_are($a, 2, 'tutorial: init');
    $kv->push(3, mx->nd->ones($shape) * 8);
    $kv->pull(3, out => $a);
    all_are($a, 8, 'tutorial: push');
    $kv->push(3, [map { mx->nd->ones($shape, ctx => mx->gpu($_)) } 0 .. 3]);
    $kv->pull(3, out => $a);
    all_are($a, 4, 'tutorial: four devices');
    $kv->_set_updater(sub { my ($key, $input, $stored) = @_; $stored += $input * 2 });
    $kv->push(3, mx->nd->ones($shape));
    $kv->pull(3, out => $a);
    all_are($a, 6, 'tutorial: updater');
    $kv->init(\@keys, [map { mx->nd->ones($shape) } @keys]);
    $kv->push(\@keys, [map { mx->nd->ones($shape) } @keys]);
    my @outs = map { mx->nd->zeros($shape) } @keys;
    $kv->pull(\@keys, out => \@outs);
    all_are($outs[1], 3, 'tutorial: list of keys');
    $kv->push(\@keys, [map { [map { mx->nd->ones($shape) } 0 .. 3] } @keys]);
    $kv->pull(\@keys, out => \@outs);
    all_are($outs[2], 11, 'tutorial: list of keys and devices');

    my $perl = mx->kv->create;
    $perl->init(3, mx->nd->ones($shape) * 2);
    $perl->init(\@keys, [map { mx->nd->ones($shape) } @keys]);
    $perl->_set_updater(sub { my (undef, $input, $stored) = @_; $stored += $input * 3 });
    $perl->push(3, [mx->nd->ones($shape), mx->nd->ones($shape)]);
    $perl->pull(3, out => $a);
    all_are($a, 8, 'the Perl tutorial: two ones on a store of two');
    $perl->push(\@keys, [map { mx->nd->ones($shape) } @keys]);
    $perl->pull(\@keys, out => \@outs);
    all_are($outs[0], 4, 'the Perl tutorial: a list from one');

    my $sgd = mx->kv->create;
    $sgd->init('weight', mx->nd->zeros($shape));
    $sgd->set_optimizer(mx->optimizer->SGD);
    $sgd->push('weight', mx->nd->ones($shape));
    $sgd->pull('weight', out => $a);
    all_are($a, -0.01, 'set_optimizer(SGD)');
}
{
    # Local nightly: compression on a store that sums over devices.
    my $kv = mx->kv->create('local_allreduce_device');
    $kv->set_gradient_compression({ type => '2bit', threshold => 0.5 });
    $kv->init('k', mx->nd->zeros($shape));
    $kv->set_optimizer(mx->optimizer->Test(rescale_grad => 2));
    my $out = mx->nd->zeros($shape);
    my $round = sub { my ($value) = @_; $kv->push('k', [map { mx->nd->full($shape, $value) } 1 .. 4]); $kv->pull('k', out => $out); $out->aspdl->at(0, 0) };
    my @seen = map { $round->($_) } 0.4, 0.2, 0.2, 0.2;
    is_deeply(\@seen, [0, 4, 4, 8], 'compression on devices: 0.4 0.2 0.2 0.2');
    is($round->(-0.5), 4, 'and back') for 1 .. 1;
}
{
    # Local nightly: ten rounds of random gradients from four devices.
    my $kv = mx->kv->create('device');
    $kv->init('w', mx->nd->zeros([100]));
    $kv->set_optimizer(mx->optimizer->Test(rescale_grad => 0.1));
    my $expected = zeroes(double, 100);
    for (1 .. 10) {
        my @gradients = map { mx->nd->array(grandom(float, 100)) } 1 .. 4;
        $expected += 0.1 * $_->aspdl for @gradients;
        $kv->push('w', \@gradients);
    }
    my $out = mx->nd->zeros([100]);
    $kv->pull('w', out => $out);
    ok(abs($out->aspdl - $expected)->sum / abs($expected)->sum < 1e-6, 'ten rounds within 1e-6');
}
done_testing;
