# Arrays in MXNet's manner, and PDL's own: slices, small ones, every type.
use strict;
use warnings;
use Test::More;
use PDL;
use AI::MXNet qw(mx);
use Syncline::KVStore;

subtest 'making and asking' => sub {
    my $a = mx->nd->array([[1, 2, 3], [4, 5, 6]], ctx => mx->gpu(1));
    is_deeply([$a->shape, $a->dtype, $a->stype, "" . $a->ctx, $a->size, $a->ndim], [[2, 3], 'float32', 'default', 'gpu(1)', 6, 2], 'facts');
    is_deeply([$a->aspdl->dims], [3, 2], 'a PDL lists its fastest dimension first');
    my $copy = $a->aspdl;
    $copy += 1;
    is($a->aspdl->at(0, 0), 1, 'aspdl is a copy');
    is(mx->nd->full([1], 7)->asscalar, 7, 'asscalar');
    is(mx->nd->zeros([2], dtype => $_)->dtype, $_, $_) for qw(float32 float64 uint8 int16 int32 int64);
    ok($a->copyto(mx->cpu)->ctx == mx->cpu, 'contexts are labels');
    my %made = (ones => mx->nd->ones([2, 3], mx->gpu(1)), zeros => mx->nd->zeros([2], mx->gpu(1), dtype => 'float64'), full => mx->nd->full([2], 7, mx->gpu(1)),
        array => mx->nd->array([1, 2], mx->gpu(1)), empty => mx->nd->empty([4], mx->gpu(1)), sparse => mx->nd->sparse->zeros('row_sparse', [2, 3], mx->gpu(1)));
    is("" . $made{$_}->ctx, 'gpu(1)', "$_ with a context that has no name") for sort keys %made;
    is($made{zeros}->dtype, 'float64', 'options may follow it');
    is($made{ones}->aspdl->sum, 6, 'and the numbers are the same');
    for my $wrong ([mx->cpu, ctx => mx->cpu], [mx->cpu, 'dtype'], ['cpu'], [mx->cpu, mx->cpu]) {
        ok(!eval { mx->nd->ones([2], @$wrong); 1 }, 'nonsense is refused');
        is(ref $@, 'Syncline::Error::ArgumentError', 'as an argument');
    }
    is($a->reshape([3, 2])->aspdl->at(1, 2), 6, 'reshape');
    is($a->astype('int32')->dtype, 'int32', 'astype');
    is($a->sum->asscalar, 21, 'sum');
    like("$a", qr/2x3 \@gpu\(1\)/, 'as a text');
};
subtest 'arithmetic' => sub {
    my $a = mx->nd->array([1, 2, 3]);
    my $list = sub { [$_[0]->aspdl->list] };
    is_deeply($list->($a + 1), [2, 3, 4], '+');
    is_deeply($list->(1 - $a), [0, -1, -2], '- swapped');
    is_deeply($list->($a * $a), [1, 4, 9], '*');
    is_deeply($list->(6 / $a), [6, 3, 2], '/ swapped');
    is_deeply($list->($a**2), [1, 4, 9], '**');
    is_deeply($list->($a % 2), [1, 0, 1], '%');
    is_deeply($list->(-$a), [-1, -2, -3], 'neg');
    is_deeply($list->($a > 1), [0, 1, 1], '>');
    is_deeply($list->($a == $a), [1, 1, 1], '==');
    my $same = $a;
    $a += 1;
    $a *= 2;
    $a -= 2;
    $a /= 2;
    is_deeply($list->($same), [1, 2, 3], 'in place: every name of the array sees it');
    $a .= 5;
    is_deeply($list->($same), [5, 5, 5], '.= sets');
    is(($a * 0.5)->dtype, 'float32', 'the dtype stays');
    is(eval { my $sum = $a + mx->nd->ones([2]); 1 }, undef, 'other shapes are refused');
    isa_ok($@, 'Syncline::Error::ShapeMismatch');
};
subtest 'row-sparse' => sub {
    my $a = mx->nd->array([[0, 0], [1, 2], [0, 0], [3, 0]])->tostype('row_sparse');
    is_deeply([$a->stype, $a->shape, [$a->indices->aspdl->list], [$a->data->aspdl->list]], ['row_sparse', [4, 2], [1, 3], [1, 2, 3, 0]], 'from dense');
    is($a->indices->dtype, 'int64', 'ids are int64');
    is($a->tostype('default')->stype, 'default', 'and back');
    my $b = mx->nd->sparse->row_sparse_array([[[1, 1], [2, 2], [5, 5]], [3, 0, 3]], shape => [4, 2]);
    is_deeply([[$b->indices->aspdl->list], [$b->data->aspdl->list]], [[0, 3], [2, 2, 6, 6]], 'sorted, repeated rows added');
    is(mx->nd->sparse->zeros('row_sparse', [4, 2])->aspdl->sum, 0, 'zeros');
    is(($a + $b)->stype, 'default', 'arithmetic is dense');
    my $three = mx->nd->ones([2, 3, 4])->tostype('row_sparse');
    is_deeply([$three->shape, $three->aspdl->sum, [$three->data->aspdl->dims]], [[2, 3, 4], 24, [4, 3, 2]], 'rows of any shape');
};
subtest 'PDL without the costume' => sub {
    my $kv = Syncline::KVStore->create;
    for my $type (float, double, byte, short, long, longlong) {
        my $key = "of $type";
        $kv->init($key, sequence($type, 5));
        $kv->push($key, sequence($type, 5) * 2);
        my $got = $kv->pull($key);
        ok(($got == 2 * sequence(5))->all && $got->type == $type, "$type");
    }
    is(eval { $kv->init('complex', PDL->new(1)->convert(PDL::ushort())); 1 }, undef, 'a type that cannot be shared');
    $kv->init('matrix', sequence(float, 4, 3));
    my $board = zeroes(float, 10, 10);
    $kv->pull('matrix', out => $board->slice('2:5,3:5'));
    is($board->sum, 66, 'into a slice of a larger one');
    is($board->at(5, 5), 11, 'in its place');
    $kv->push('matrix', $board->slice('5:2,5:3'));
    is_deeply([$kv->pull('matrix')->slice(':,(0)')->list], [11, 10, 9, 8], 'from a slice that runs backwards');
    my $turned = sequence(float, 3, 4);
    $kv->push('matrix', $turned->transpose);
    ok(($kv->pull('matrix') == $turned->transpose)->all, 'from a transposed one');
    for my $count (0, 1, 2, 4, 7, 8, 9, 16, 1000) {
        $kv->init("n$count", zeroes(float, $count));
        $kv->push("n$count", sequence(float, $count));
        my $out = zeroes(float, $count);
        $kv->pull("n$count", out => $out);
        ok($count == 0 || ($out == sequence($count))->all, "$count numbers: PDL keeps up to 32 bytes elsewhere");
    }
    $kv->init('scalar', pdl(float, 7));
    is($kv->pull('scalar')->sclr, 7, 'an array without dimensions');
    my $whole = sequence(float, 20);
    my $part = $whole->slice('0:4');
    $kv->init('whole', zeroes(float, 20));
    $kv->pull('whole', out => $whole);
    is($part->sum, 0, 'a slice sees what its array got');
    my $same = zeroes(float, 20);
    $kv->push('whole', ones(float, 20));
    $kv->pull(['whole', 'whole'], out => [$same, $same]);
    is($same->sum, 20, 'one array twice');
    my $mine = ones(float, 20) * 3;
    $kv->pushpull('whole', $mine);
    is($mine->sum, 60, 'in place');
    my $numbers = Syncline::KVStore->create('local', int_keys => 1);
    $numbers->init(-5, zeroes(float, 2));
    my $seen;
    $numbers->set_updater(sub { ($seen) = @_ });
    $numbers->push(-5, zeroes(float, 2));
    is($seen, -5, 'keys as numbers');
    my $named = Syncline::KVStore->create;
    $named->init("gewicht \x{e4}\x{2211}", zeroes(float, 2));
    $named->set_updater(sub { ($seen) = @_ });
    $named->push("gewicht \x{e4}\x{2211}", zeroes(float, 2));
    is($seen, "gewicht \x{e4}\x{2211}", 'keys in any letters');
};
done_testing;
