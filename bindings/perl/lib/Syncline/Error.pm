package Syncline::Error;

# What calls die with: words, a kind that never changes its name, and who is to blame.

use strict;
use warnings;
use overload '""' => \&text, 'bool' => sub { 1 }, 'eq' => sub { "$_[0]" eq "$_[1]" }, fallback => 1;

our $VERSION = '0.1.0';

our @KINDS = qw(PeerLost Timeout ContractMismatch AuthError ShapeMismatch UnknownKey Closed ConfigurationError ForkError Interrupted
    SystemError ArgumentError CallerError Bug);

for my $kind (@KINDS) {
    no strict 'refs';
    @{"Syncline::Error::${kind}::ISA"} = ('Syncline::Error');
}

# raise(KIND, TEXT, FACTS): dies where the caller's own code made the call.
sub raise {
    my ($kind, $text, %facts) = @_;
    my ($file, $line) = site();
    my $class = "Syncline::Error::$kind";
    $class = 'Syncline::Error' unless $class->isa('Syncline::Error');
    die bless { kind => $kind, message => $text, file => $file, line => $line, %facts }, $class;
}

# Refuses an argument.
sub argument { raise('ArgumentError', join '', @_) }

# no_more(CALL, ARGUMENTS): refuses what came behind the last argument of a call, which would be overlooked.
sub no_more {
    my ($call, @more) = @_;
    argument("$call: there is no argument behind the last, and " . Syncline::Array::shown($more[0]) . ' came') if @more;
    return;
}

# The first caller that is no part of this distribution.
sub site {
    my $level = 1;
    while (my ($package, $file, $line) = caller $level++) {
        return ($file, $line) unless $package =~ /\A(?:Syncline|AI::MXNet)(?:::|\z)/ || $package =~ /\AFFI::Platypus/;
    }
    return ('a program in Perl', 0);
}

sub kind    { $_[0]{kind} }
sub message { $_[0]{message} }
sub rank    { $_[0]{rank} }
sub host    { $_[0]{host} }
sub pid     { $_[0]{pid} }
sub file    { $_[0]{file} }
sub line    { $_[0]{line} }
sub text    { my ($self) = @_; return "$self->{message} at $self->{file} line $self->{line}.\n" }

1;

__END__

=head1 NAME

Syncline::Error - what calls of Syncline die with

=head1 SYNOPSIS

    use Scalar::Util qw(blessed);
    unless (eval { $kv->push('w', $gradient); 1 }) {
        my $error = $@;
        die $error unless blessed $error && $error->isa('Syncline::Error::PeerLost');
        printf "rank %d on %s is gone: %s", $error->rank, $error->host // 'an unknown host', $error;
    }

=head1 DESCRIPTION

As a text an error is its message with the file and line of your call. Each kind is a class below C<Syncline::Error>:
C<PeerLost>, C<Timeout>, C<ContractMismatch>, C<AuthError>, C<ShapeMismatch>, C<UnknownKey>, C<Closed>, C<ConfigurationError>, C<ForkError>, C<Interrupted>,
C<SystemError>, C<ArgumentError>, C<CallerError>, C<Bug>.

=head1 METHODS

C<kind>, C<message>, C<file>, C<line>; and where a member of the job is to blame C<rank>, C<host>, C<pid> (C<undef> otherwise).

=cut
