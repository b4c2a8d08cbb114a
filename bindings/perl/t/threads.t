# Threads of Perl's own: each has an interpreter of its own, and what it is given are copies. None of that may end the program.
use strict;
use warnings;
use Config;
use Test::More;

plan skip_all => 'this perl has no threads' unless $Config{useithreads};

# A program of its own, since what is wrong shows when it ends.
sub run {
    my ($name, $code) = @_;
    my @paths = map { "-I$_" } @INC;
    open my $said, '-|', $^X, @paths, '-Mthreads', '-MPDL', '-MAI::MXNet=mx', '-MSyncline', '-MSyncline::KVStore', '-e', "\$PDL::no_clone_skip_warning = 1; $code" or die $!;
    my $text = do { local $/; <$said> };
    close $said;
    is($?, 0, "$name: it ends well");
    return $text;
}

is(run('a thread', 'print threads->create(sub { 5 })->join'), 5, 'a program that has loaded the modules may have threads');

is(run('objects', <<'CODE'), "pulled 4\n", 'stores, tables and updaters of one thread are its own');
my $kv = mx->kv->create;
$kv->init('w', mx->nd->ones([2]));
$kv->_set_updater(sub { my ($key, $recv, $local) = @_; $local += $recv });
my $plain = Syncline::KVStore->create;
my $table = Syncline::ArrayTable->new(3);
my @lived = map { $_->join } map { threads->create(sub {
    map { eval { $_->(); 1 } ? 'lived' : () } sub { $kv->push('w', mx->nd->ones([2])) }, sub { $kv->type }, sub { $plain->type }, sub { $table->get }
}) } 1 .. 3;
print "lived: @lived\n" if @lived;
$kv->push('w', mx->nd->ones([2])) for 1 .. 3;
my $out = mx->nd->zeros([2]);
$kv->pull('w', out => $out);
print 'pulled ', $out->aspdl->at(0), "\n";
CODE

is(run('stores of threads', <<'CODE'), "6 6 6\n", 'a thread may have a store of its own');
print join(' ', map { $_->join } map { threads->create(sub {
    my $kv = Syncline::KVStore->create;
    $kv->init(w => PDL->ones(PDL::float(), 3));
    $kv->set_updater(sub { my ($key, $recv, $local) = @_; $local += $recv });
    $kv->push(w => PDL->ones(PDL::float(), 3));
    $kv->pull('w')->sum . '';
}) } 1 .. 3), "\n";
CODE

is(run('loaded in a thread', 'threads->create(sub { require Syncline::Optimizer; Syncline::KVStore->create->type })->join; print "fine"'), 'fine', 'a thread that is gone is not asked');

SKIP: {
    my $syncline = (grep { -x } map { "$_/syncline" } split /:/, $ENV{PATH})[0];
    skip 'there is no syncline on the PATH', 1 unless $syncline;
    # One rank waits in a thread for longer than it takes until it would be asked whether to go on.
    my $wait = 'Syncline::init(); if (Syncline::rank()) { sleep 1; Syncline::barrier() } else { threads->create(sub { Syncline::barrier() })->join; print "waited\n" }';
    local $ENV{PERL5LIB} = join ':', @INC;
    my $said = qx($syncline run -n 2 --timeout 20 $^X -Mthreads -MSyncline -e '\$PDL::no_clone_skip_warning = 1; $wait' 2>&1);
    like($said, qr/waited/, 'a wait in another thread runs no function of the interpreter that it does not belong to');
}
done_testing;
