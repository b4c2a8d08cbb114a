package Syncline::Optimizer;

# Optimizers as plain data: a name and options. What is a valid one, and what the defaults are, the library decides.

use strict;
use warnings;

use JSON::PP ();
use Scalar::Util qw(blessed looks_like_number);
use Syncline::Array ();
use Syncline::Error ();
use Syncline::FFI ();

our $VERSION = '0.1.0';

my $json = JSON::PP->new->canonical->allow_nonref->allow_bignum(0);

# create(NAME, OPTIONS): refuses names, options and numbers that make no sense.
sub create {
    my ($class, $name, @options) = @_;
    Syncline::Error::argument('an optimizer is ' . Syncline::Array::shown($name) . ', and must be a name') if !defined $name || ref $name;
    Syncline::Error::argument("optimizer $name: options come in pairs, name => value") if @options % 2;
    my $self = bless { name => lc $name, given => {@options}, stores => {} }, $class;
    $self->complete;
    return $self;
}

sub name { $_[0]{name} }

# Everything that was given and the defaults.
sub options { my ($self) = @_; return { %{ $self->{all} } } }

sub get {
    my ($self, $option) = @_;
    return $self->{all}{$option} if defined $option && exists $self->{all}{$option};
    Syncline::Error::raise('ConfigurationError', "$self->{name} has no option " . Syncline::Array::shown($option));
}

# set(OPTION => VALUE, ...): changes numbers; stores that use it learn of it, and their states stay.
sub set {
    my ($self, %changes) = @_;
    my %before = %{ $self->{given} };
    %{ $self->{given} } = (%before, %changes);
    unless (eval { $self->complete; 1 }) {
        my $error = $@;
        $self->{given} = \%before;
        $self->complete;
        die $error;
    }
    Syncline::KVStore::Rules::use_optimizer($_, $self, 1) for values %{ $self->{stores} };
    return $self;
}

sub learning_rate {
    my ($self, @rate) = @_;
    $self->set(learning_rate => $rate[0]) if @rate;
    return $self->{all}{learning_rate};
}

sub set_learning_rate { my ($self, $rate) = @_; $self->set(learning_rate => $rate); return }

# Stores that want to hear of changes, by their handles; who goes says so.
sub attach { my ($self, $store) = @_; $self->{stores}{ $store->{handle} } = $store->{handle}; return }
sub forget { my ($self, $store) = @_; delete $self->{stores}{ $store->{handle} }; return }

sub json { my ($self) = @_; return $json->encode($self->{plain}) }

# Asks the library for all options.
sub complete {
    my ($self) = @_;
    my $plain = { map { $_ => plain_value($self->{given}{$_}, $_) } keys %{ $self->{given} } };
    my ($name, $text, $size) = ($self->{name}, $json->encode($plain), 0);
    utf8::encode($name);
    Syncline::Error::argument('the name of an optimizer holds a zero byte') if index($name, "\0") >= 0;
    my $status = Syncline::FFI::optimizer_options($name, $text, undef, 0, \$size);
    Syncline::FFI::failed($status) if $status;
    my $out = Syncline::FFI::room($size);
    $status = Syncline::FFI::optimizer_options($name, $text, $out, $size, \$size);
    Syncline::FFI::failed($status) if $status;
    @$self{qw(plain all)} = ($plain, $json->decode(Syncline::FFI::text($out)));
    return;
}

# Numbers as numbers, texts as texts: Perl itself does not tell them apart.
sub plain_value {
    my ($value, $option) = @_;
    return $value->plain if blessed $value && $value->can('plain');
    return { map { $_ => plain_value($value->{$_}, $option) } keys %$value } if ref $value eq 'HASH';
    return [map { plain_value($_, $option) } @$value] if ref $value eq 'ARRAY';
    Syncline::Error::argument("option $option is " . Syncline::Array::shown($value) . ', which is no number') if ref $value;
    return $value unless defined $value && looks_like_number($value);
    my $number = $value + 0;
    Syncline::Error::argument("option $option is $number") if $number != $number || $number - $number != 0;
    return $number;
}

1;

__END__

=head1 NAME

Syncline::Optimizer - what a push does to a weight

=head1 SYNOPSIS

    my $sgd = Syncline::Optimizer->create('sgd', learning_rate => 1, momentum => 0.9, lr_mult => { bias => 2 });
    $kv->set_optimizer($sgd);
    $sgd->learning_rate(0.1);       # from now on, at the servers too; momenta stay

=head1 DESCRIPTION

A name and options, with MXNet's defaults: C<sgd nag signum ftml dcasgd sgld adam adamw adagrad rmsprop adadelta ftrl adamax nadam lamb lars test>, and C<custom> with a formula of your own
(C<< update => 'w -= lr * g' >>). Common options: C<learning_rate wd rescale_grad clip_gradient lr_scheduler begin_num_update multi_precision lr_mult wd_mult>. They are plain data; servers run loops they already have.

A scheduler is a hash: C<< { name => 'factor', step => 10, factor => 0.5 } >>, C<multifactor>, C<poly> or C<cosine>; L<AI::MXNet::LRScheduler> makes them.

=head1 METHODS

C<create($name, %options)>; C<name>, C<options>, C<get($option)>; C<set($option =E<gt> $value)>, C<learning_rate($rate)> and C<set_learning_rate($rate)> change numbers, and stores that use the optimizer learn of it.

=cut
