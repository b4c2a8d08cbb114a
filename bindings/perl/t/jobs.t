# Several processes under `syncline run`: the numbers of distributed stores, a death, signals, forks, the example.
use strict;
use warnings;
use Test::More;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);

my ($launcher) = grep { -x } map { "$_/syncline" } split /:/, $ENV{PATH} // '';
plan skip_all => 'syncline, which starts jobs, is not in the PATH' unless $launcher;
my $here = abs_path(dirname(__FILE__));
my @perl = ($^X, map { "-I$_" } grep { !ref && /\b(?:blib|lib)\b/ } @INC);

# The output of so many ranks of a program, and how it ended.
sub job {
    my ($ranks, @program) = @_;
    open my $out, '-|', "$launcher run -n $ranks --timeout 30 @perl @program 2>&1" or die $!;
    my $said = do { local $/; <$out> } // '';
    close $out;
    return ($said, $? >> 8);
}

for my $ranks (1, 2, 3) {
    for my $program (qw(store tables)) {
        my ($said, $code) = job($ranks, "$here/jobs/$program.pl");
        my $fine = () = $said =~ /fine$/mg;
        ok($code == 0 && $fine == $ranks, "$program with $ranks") or diag($said);
    }
}
{
    my ($said, $code) = job('2 --servers 1', "$here/jobs/store.pl");
    my $fine = () = $said =~ /fine$/mg;
    ok($code == 0 && $fine == 2, 'store with 2 and a server of its own') or diag($said);
}
{
    my ($said, $code) = job(3, "$here/jobs/server.pl");
    my $fine = () = $said =~ /fine$/mg;
    ok($code == 0 && $fine == 3, 'a server in Perl stays until its workers have left') or diag($said);
}
{
    my ($said) = job(2, "$here/jobs/lost.pl");
    like($said, qr/PeerLost of rank 1, pid known/, 'a death is named');
    like($said, qr/lost\.pl line 12/, "and the caller's line");
}
{
    my $folder = tempdir(CLEANUP => 1);
    my ($said, $code) = job(2, "$here/jobs/waits.pl", $folder);
    my $fine = () = $said =~ /fine$/mg;
    ok($code == 0 && $fine == 2, 'signals end waits, forks are told') or diag($said);
}
SKIP: {
    my $example = "$here/../../../examples/perl/kvstore.pl";
    skip 'the example is not here', 2 unless -e $example;
    for my $ranks (1, 2) {
        my ($said, $code) = job($ranks, $example);
        my $done = () = $said =~ /done$/mg;
        ok($code == 0 && $done == $ranks, "the example with $ranks") or diag($said);
    }
}
done_testing;
